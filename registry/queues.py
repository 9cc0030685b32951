"""Celery: the application, the queues' names, and sending job ids. Messages carry ids only.

Exchange and routing key are declared for every queue: a bare `Queue` binds to the default queue's exchange *and* key,
so that one base's jobs would land on another's worker.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import BatchPublishError, OperationalError
from redis.exceptions import RedisError

from registry.settings import Settings, get_settings

RUN_JOB = "lorry.run_job"
DELIVER = "lorry.deliver"
DELIVERIES = "deliveries"
_EXCHANGE = Exchange("lorry", type="direct")
_BATCH = 500

AWAY: Final = (OperationalError, BatchPublishError, RedisError, OSError)
"""What a broker that is away, full, or dies in the middle of a send brings."""


def queue_name(deployment: str) -> str:
    """The one queue of a deployment."""
    return f"infer.{deployment}"


def queue(name: str) -> Queue:
    """A queue with its exchange and routing key spelled out."""
    return Queue(name, _EXCHANGE, routing_key=name)


def make_celery(settings: Settings, timeout_s: float | None = None) -> Celery:
    """The application, as all share it. `timeout_s`: longest wait for a broker that hangs; by default without end."""
    celery = Celery("lorry", broker=settings.resolved_broker_url)
    celery.conf.update(
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=DELIVERIES,
        task_default_exchange="lorry",
        task_default_routing_key=DELIVERIES,
        task_queues=[queue(DELIVERIES)],
        task_create_missing_queues=False,
        worker_prefetch_multiplier=1,
        worker_send_task_events=True,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        # Redelivery is the dispatcher's business, by worker beat: Redis must never run a long job a second time.
        broker_transport_options={
            "visibility_timeout": 6 * 3600,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": 2,
            "max_retries": 0,  # of a send: the dispatcher's next tick tries again, and must not stand still for 6 s
            **({} if timeout_s is None else {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}),
        },
    )
    return celery


celery_app = make_celery(get_settings())


def send_jobs(celery: Celery, deployment: str, wire_ids: Sequence[str], *, first: bool = False) -> None:
    """Put job ids on a deployment's queue, in order. The task's id is the job's, so that Flower finds it.

    `first`: before what lies there. Raises one of `AWAY` when the broker is: the rows stay dispatched and are sent
    again later.
    """
    name = queue_name(deployment)
    _send(celery, RUN_JOB, name, wire_ids)
    if first and wire_ids:
        # The dispatcher alone puts jobs on the left. Should a worker have taken some meanwhile, others change places.
        with celery.connection_or_acquire() as connection, connection.default_channel.client.pipeline() as pipe:
            for _ in wire_ids:
                pipe.lmove(name, name, "LEFT", "RIGHT")
            pipe.execute()


def send_deliveries(celery: Celery, wire_ids: Sequence[str]) -> None:
    """Put delivery ids on their queue, in order. Raises as `send_jobs` does."""
    _send(celery, DELIVER, DELIVERIES, wire_ids)


def waiting_ids(celery: Celery, deployment: str) -> set[str]:
    """The job ids whose messages lie in a deployment's queue: few by design, since the backlog waits in PostgreSQL."""
    return waiting(celery, queue_name(deployment))


def length(celery: Celery, deployment: str) -> int:
    """How many messages lie in a deployment's queue. Raises kombu's OperationalError or redis's RedisError."""
    with celery.connection_or_acquire() as connection:
        client: Any = connection.default_channel.client
        return int(client.llen(queue_name(deployment)))


def waiting(celery: Celery, name: str) -> set[str]:
    """The task ids of the messages that lie in a queue."""
    with celery.connection_or_acquire() as connection:
        client: Any = connection.default_channel.client
        return {json.loads(message)["headers"]["id"] for message in client.lrange(name, 0, -1)}


def _send(celery: Celery, task: str, name: str, wire_ids: Sequence[str]) -> None:
    if not wire_ids:
        return
    with celery.producer_or_acquire() as producer, producer.batch(_BATCH):
        for wire_id in wire_ids:
            celery.send_task(
                task,
                args=(wire_id,),
                task_id=wire_id,
                queue=queue(name),
                producer=producer,
                retry=False,
                argsrepr="()",
            )
