"""The dispatcher: one small loop that owns order and fairness. It picks over the whole backlog, keeps queues short.

A tick: look at every deployment's load, pick what free threads will soon take, commit, send the ids. Beside that it
repairs: takes back what dead workers held, re-queues what Redis lost, expires, folds tallies, makes tomorrow's tables.
Its work depends on what is sent and who waits, not on the backlog's length.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable

import psycopg
from celery import Celery
from kombu.exceptions import OperationalError as BrokerAway
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from registry import backlog, ids, queues, wake
from registry.backlog import Load
from registry.db import SYSTEM_ROLE, Database
from registry.errors import Unavailable
from registry.logs import configure_logs, get_logger
from registry.queues import celery_app
from registry.settings import Settings, get_settings
from workers import repair
from workers.leader import Leader

MIN_UNCLAIMED = 8
"""A freed thread finds work at once, even when all others are busy."""
MAX_UNCLAIMED = 200
"""What free threads take in a quarter second, at the rate a Celery worker consumes."""
IDLE_S = 1.0
SPARE_S = 1.0
AWAY_S = 0.5

_log = get_logger("dispatcher")


def wanted(load: Load) -> int:
    """How many more jobs this deployment's queue should get now."""
    free = load.capacity - load.running - load.dispatched
    target = max(MIN_UNCLAIMED, min(free + load.dispatched, MAX_UNCLAIMED))
    return max(0, target - load.dispatched) if load.has_queued else 0


class Dispatcher:
    """`run` until `stop` is called, from any thread."""

    def __init__(self, settings: Settings, celery: Celery) -> None:
        self._settings = settings
        self._celery = celery
        self._database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=2)
        self._leader = Leader(self._database.engine)
        self._stopping = threading.Event()
        self._chores = repair.chores(settings, celery)

    def stop(self) -> None:
        """End after the present tick."""
        self._stopping.set()

    def run(self) -> None:
        """Lead when nobody does, else wait as a spare; survive every outage."""
        while not self._stopping.is_set():
            try:
                if not self._leader.try_to_lead():
                    self._stopping.wait(SPARE_S)
                    continue
                _log.info("this dispatcher leads")
                self._lead()
            except (Unavailable, SQLAlchemyError, psycopg.Error) as error:
                self._leader.resign()
                _log.warning("the registry is away", error=type(error).__name__)
                self._stopping.wait(AWAY_S)
        self._leader.resign()
        self._database.close()

    def _lead(self) -> None:
        with wake.listen(self._settings.resolved_database_url, wake.QUEUED) as listener:
            while not self._stopping.is_set():
                busy = self.tick()
                if busy:
                    self._stopping.wait(self._settings.tick_ms / 1000)
                else:
                    for _notice in listener.notifies(timeout=IDLE_S, stop_after=1):
                        pass

    def tick(self) -> bool:
        """One round. True while anything is queued or running."""
        now_s = time.monotonic()
        for chore in self._chores:
            chore.run_if_due(self._leader, now_s)
        with self._leader.transaction() as session:
            loads = backlog.loads(session, self._settings.lease_s)
            picked = [(load.deployment, backlog.pick(session, load.deployment, wanted(load))) for load in loads]
        for deployment, job_ids in picked:
            self._send(deployment, (ids.to_wire("job", job_id) for job_id in job_ids))
        return any(load.busy for load in loads)

    def _send(self, deployment: str, wire_ids: Iterable[str]) -> None:
        """After the commit. What cannot be sent stays dispatched and is found missing by `repair`."""
        try:
            queues.send_jobs(self._celery, deployment, list(wire_ids))
        except (BrokerAway, RedisError, OSError) as error:
            _log.warning("the broker is away; jobs wait", deployment=deployment, error=type(error).__name__)


def main() -> int:
    """Run this installation's dispatcher until SIGTERM or SIGINT."""
    settings = get_settings()
    configure_logs(settings.log_level)
    dispatcher = Dispatcher(settings, celery_app)
    stop: Callable[..., None] = lambda *_: dispatcher.stop()  # noqa: E731
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    dispatcher.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
