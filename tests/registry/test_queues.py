"""Queues on a real broker: each bound by its own name, messages of ids only, and what still waits."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import cast

import pytest
import redis
from celery import Celery
from kombu.exceptions import OperationalError

from registry import ids
from registry.embedded.ports import free_port
from registry.queues import DELIVERIES, RUN_JOB, make_celery, queue, queue_name, send_jobs, waiting_ids
from registry.settings import Settings


@pytest.fixture
def client(broker_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(broker_url) as connection:
        yield connection


def wire_ids(count: int) -> list[str]:
    return [ids.to_wire("job", ids.new_id()) for _ in range(count)]


def test_every_queue_spells_out_exchange_and_routing_key(celery: Celery) -> None:
    for made in (queue(queue_name("Tiny")), *celery.conf.task_queues):
        assert (made.exchange.name, made.exchange.type, made.routing_key) == ("lorry", "direct", made.name)
    assert [made.name for made in celery.conf.task_queues] == [DELIVERIES]
    assert celery.conf.task_create_missing_queues is False


def test_a_deployments_jobs_land_on_its_own_queue_only(celery: Celery, client: redis.Redis) -> None:
    sent = {"Tiny": wire_ids(3), "Other": wire_ids(2)}
    for deployment, names in sent.items():
        send_jobs(celery, deployment, names)
    assert {d: waiting_ids(celery, d) for d in sent} == {d: set(names) for d, names in sent.items()}
    assert client.llen(DELIVERIES) == 0
    assert client.llen("celery") == 0
    bound = cast("set[bytes]", client.smembers("_kombu.binding.lorry"))
    bindings = {tuple(binding.decode().split("\x06\x16")) for binding in bound}
    # kombu remembers per process what it has bound, so after an emptied broker some may be missing: none may be wrong.
    assert {(key, name) for key, _, name in bindings} <= {(f"infer.{d}",) * 2 for d in sent}


def test_a_broker_that_lost_its_bindings_still_gets_messages(celery: Celery, client: redis.Redis) -> None:
    send_jobs(celery, "Tiny", wire_ids(1))
    client.flushall()
    again = wire_ids(2)
    send_jobs(celery, "Tiny", again)
    assert waiting_ids(celery, "Tiny") == set(again)


def test_messages_leave_the_list_in_the_order_sent(celery: Celery, client: redis.Redis) -> None:
    sent = wire_ids(20)
    send_jobs(celery, "Tiny", sent)
    taken = [json.loads(client.rpop("infer.Tiny"))["headers"]["id"] for _ in sent]  # type: ignore[arg-type]
    assert taken == sent


def test_messages_may_be_put_before_those_that_lie_there(celery: Celery, client: redis.Redis) -> None:
    usual, hurried = wire_ids(5), wire_ids(3)
    send_jobs(celery, "Tiny", usual)
    send_jobs(celery, "Tiny", hurried, first=True)
    taken = [json.loads(client.rpop("infer.Tiny"))["headers"]["id"] for _ in range(8)]  # type: ignore[arg-type]
    assert taken == [*hurried, *usual]


def test_a_message_carries_the_id_and_shows_no_arguments(celery: Celery, client: redis.Redis) -> None:
    [name] = wire_ids(1)
    send_jobs(celery, "Tiny", [name])
    message = json.loads(client.lindex("infer.Tiny", 0))  # type: ignore[arg-type]
    headers = message["headers"]
    assert (headers["task"], headers["id"], headers["argsrepr"], headers["kwargsrepr"]) == (RUN_JOB, name, "()", "{}")
    celery_body = json.loads(base64.b64decode(message["body"]))
    assert celery_body[:2] == [[name], {}]


def test_no_ids_send_nothing_and_an_unknown_queue_has_none_waiting(celery: Celery, client: redis.Redis) -> None:
    send_jobs(celery, "Tiny", [])
    assert client.keys("*") == []
    assert waiting_ids(celery, "Nobody") == set()


def test_a_batch_larger_than_a_chunk_is_sent_whole(celery: Celery) -> None:
    sent = wire_ids(1203)
    send_jobs(celery, "Tiny", sent)
    assert waiting_ids(celery, "Tiny") == set(sent)


def test_a_broker_that_is_away_is_an_error_at_once(settings: Settings) -> None:
    begun_s = time.monotonic()
    app = make_celery(settings.model_copy(update={"broker_url": f"redis://127.0.0.1:{free_port()}/0"}))
    with pytest.raises(OperationalError):
        send_jobs(app, "Tiny", wire_ids(1))
    assert time.monotonic() - begun_s < 2
    app.close()


def test_redelivery_is_left_to_the_dispatcher(celery: Celery) -> None:
    options = celery.conf.broker_transport_options
    assert options["visibility_timeout"] == 6 * 3600
    assert options["unacked_restore_throttle"] == 1
    assert celery.conf.worker_cancel_long_running_tasks_on_connection_loss is False
    assert (celery.conf.task_acks_late, celery.conf.task_ignore_result) == (True, True)
    assert celery.conf.result_backend is None
