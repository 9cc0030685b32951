"""Celery's own worker with threads, bent in three places: signals are ours, a broker that is away is asked for every
second, for ever, instead of ever more seldom, and a process whose engine is down takes nothing from its queue.
"""

from __future__ import annotations

import time
from typing import Any

from celery.worker import state as celery_state
from celery.worker.consumer import Consumer
from celery.worker.state import maybe_shutdown

from registry.logs import get_logger
from registry.queues import DELIVERIES, celery_app, queue
from registry.settings import Settings

RECONNECT_S = 1.0
EVENTS_EVERY_S = 0.1
"""How often what Flower shows is published: for each job by itself it would cost as much as the job's claim."""
STEADY_S = 60.0
"""A consumer that ran this long has not failed in a row."""
MAX_ENDS = 10

_log = get_logger("consuming")


class PatientConsumer(Consumer):  # type: ignore[misc]
    """Connects as soon as the broker is there; publishes its events in groups; stops taking messages when told."""

    latest: PatientConsumer | None = None
    taking = True
    """Of the whole process, for consumers to come as well: see `take`."""
    _flushing: Any = None

    def register_with_event_loop(self, hub: Any) -> None:
        """Called at every connection."""
        super().register_with_event_loop(hub)
        if self._flushing is not None:
            self._flushing.cancel()
        self._flushing = hub.call_repeatedly(EVENTS_EVERY_S, self._flush_events)
        PatientConsumer.latest = self
        self.call_soon(self.heed)

    def heed(self) -> None:
        """In the consumer's own thread: take messages, or not, as the process is told."""
        for queue_taken in self.app.conf.task_queues:
            if not self.taking:
                self.task_consumer.cancel_by_queue(queue_taken)
            elif not self.task_consumer.consuming_from(queue_taken):
                self.task_consumer.add_queue(queue_taken)
                self.task_consumer.consume()

    def on_send_event_buffered(self) -> None:
        """Nothing: the timer publishes."""

    def ensure_connected(self, conn: Any) -> Any:
        """Returns the connection, connected; raises only to shut down."""
        self._attempts = 0
        connected = conn.ensure_connection(
            self._on_refused,
            max_retries=None,
            interval_start=RECONNECT_S,
            interval_step=0,
            interval_max=RECONNECT_S,
            callback=maybe_shutdown,
        )
        if self._attempts:
            _log.info("the broker is back", attempts=self._attempts)
        self.first_connection_attempt = False
        return connected

    def _on_refused(self, error: Exception, _interval_s: float) -> None:
        if self._attempts == 0:
            _log.warning("the broker is away; this worker keeps trying", error=type(error).__name__)
        self._attempts += 1


class QuietWorker(celery_app.Worker):  # type: ignore[misc]
    """Leaves signals alone: Celery's own would run everything twice on a second Ctrl-C."""

    def install_platform_tweaks(self, worker: Any) -> None:
        """Nothing: see `workers.leaving`."""


def take(wanted: bool) -> None:
    """Whether this process takes messages from its queue. What it has taken already is run. From any thread."""
    PatientConsumer.taking = wanted
    if (consumer := PatientConsumer.latest) is not None:
        consumer.call_soon(consumer.heed)


def consume(settings: Settings, name: str, queue_of: str, concurrency: int) -> None:
    """Run until `celery.worker.state.should_stop` is set and no task runs any more. Tasks only wait.

    A consumer that ends by itself (a broker that dies at a bad moment, or has no memory, brings answers that kombu does
    not expect) is replaced: the engine beside it has done nothing wrong. Returns when that does not help.
    """
    celery_app.conf.task_queues = [queue(queue_of)]
    celery_app.conf.worker_consumer = f"{__name__}:{PatientConsumer.__name__}"
    celery_app.loader.import_task_module("workers.tasks_io" if queue_of == DELIVERIES else "workers.tasks")
    ends = 0
    while celery_state.should_stop is None and ends < MAX_ENDS:
        begun_s = time.monotonic()
        _worker(settings, name, queue_of, concurrency).start()
        if celery_state.should_stop is None:
            ends = 1 if time.monotonic() - begun_s > STEADY_S else ends + 1
            _log.warning("Celery's consumer ended by itself", ends=ends)
            time.sleep(RECONNECT_S)


def _worker(settings: Settings, name: str, queue_of: str, concurrency: int) -> QuietWorker:
    return QuietWorker(
        hostname=name,
        pool="threads",
        concurrency=concurrency,
        queues=[queue_of],
        loglevel=settings.log_level,
        without_gossip=True,
        without_mingle=True,
        task_events=True,
        quiet=True,
    )
