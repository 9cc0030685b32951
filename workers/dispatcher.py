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
from collections import defaultdict
from collections.abc import Callable

import psycopg
from celery import Celery
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from registry import backlog, failpoints, heap, ids, metrics, queues, wake
from registry.backlog import Load, Pace, Picked
from registry.db import SYSTEM_ROLE, Database
from registry.errors import Unavailable
from registry.logs import configure_logs, get_logger
from registry.queues import make_celery
from registry.settings import Settings, get_settings
from workers import repair
from workers.flow import Flow
from workers.leader import Leader
from workers.rescue import Rescue

IDLE_S = 1.0
SPARE_S = 1.0
AWAY_S = 0.5
BROKER_AWAY_S = 0.5
"""How often a broker that is away is tried; picking stops by itself when the queues have their share."""
BROKER_TIMEOUT_S = 1.0

_log = get_logger("dispatcher")


class Dispatcher:
    """`run` until `stop` is called, from any thread."""

    def __init__(self, settings: Settings, celery: Celery) -> None:
        self._settings = settings
        self._celery = celery
        self._database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=2)
        self._leader = Leader(self._database.engine)
        self._stopping = threading.Event()
        self._rescue = Rescue(settings.lease_s)
        self._chores = repair.chores(settings, celery, self._rescue)
        self._unsent: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
        self._broker_due_s = 0.0
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._flows: defaultdict[str, Flow] = defaultdict(Flow)

    def stop(self) -> None:
        """End after the present tick."""
        self._stopping.set()

    def run(self) -> None:
        """Lead when nobody does, else wait as a spare; survive every outage."""
        while not self._stopping.is_set():
            try:
                if not self._leader.try_to_lead():
                    self._rescue.seen(time.monotonic())
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
            news = True
            while not self._stopping.is_set():
                begun_s = time.monotonic()
                with metrics.TICK_SECONDS.time():
                    busy = self.tick(news=news)
                took_s = time.monotonic() - begun_s
                if busy:
                    # A slow tick leaves the database a third of its time to others.
                    self._stopping.wait(took_s / 2)
                left_s = self._settings.tick_ms / 1000 - took_s * 1.5 if busy else IDLE_S
                news = bool(list(listener.notifies(timeout=max(0.0, left_s), stop_after=1)))

    def tick(self, *, news: bool = True) -> bool:
        """One round. True while anything is queued or running. `news`: jobs came since the last one."""
        for chore in self._chores:
            self._run(chore)
        with self._leader.transaction() as session:
            loads = backlog.loads(session, self._settings.lease_s)
            picked = [(load.deployment, self._pick(session, load, news)) for load in loads]
        for load in loads:
            metrics.UNCLAIMED.labels(load.deployment).set(load.dispatched)
        failpoints.reach("after_pick_commit")
        for deployment, found in picked:
            wire_ids = [ids.to_wire("job", job_id) for job_id in found.jobs]
            self._unsent[deployment, True] += wire_ids[: found.hurried]
            self._unsent[deployment, False] += wire_ids[found.hurried :]
        if time.monotonic() >= self._broker_due_s:
            self._send()
        return any(load.busy for load in loads)

    def _pick(self, session: Session, load: Load, news: bool) -> Picked:
        flow = self._flows[load.deployment]
        wanted = flow.wanted(load)
        ahead = flow.ahead(load) if news or wanted else 0
        picked = backlog.pick(session, load.deployment, wanted, pace=self._paces[load.deployment], ahead=ahead)
        flow.sent(max(0, len(picked.jobs) - wanted))
        return picked

    def _run(self, chore: repair.Chore) -> None:
        """A chore that fails must not stop the picking, unless the role went with it."""
        try:
            chore.run_if_due(self._leader, time.monotonic())
        except Exception as error:
            if not self._leader.leads:
                raise
            _log.error("a chore failed", chore=chore.name, error=type(error).__name__)

    def _send(self) -> None:
        """After the commit. What cannot be sent waits here; should we die, `repair` finds it missing."""
        for (deployment, first), wire_ids in self._unsent.items():
            try:
                queues.send_jobs(self._celery, deployment, wire_ids, first=first)
            except queues.AWAY as error:
                if not self._broker_due_s:
                    _log.warning("the broker is away; jobs wait", error=type(error).__name__)
                self._broker_due_s = time.monotonic() + BROKER_AWAY_S
                return
            wire_ids.clear()
        if self._broker_due_s:
            _log.info("the broker is back")
        self._broker_due_s = 0.0


def main() -> int:
    """Run this installation's dispatcher until SIGTERM or SIGINT."""
    settings = get_settings()
    configure_logs(settings.log_level)
    # A broker that hangs must not stop the repairs; a worker, which only reads, can wait for it.
    dispatcher = Dispatcher(settings, make_celery(settings, timeout_s=BROKER_TIMEOUT_S))
    stop: Callable[..., None] = lambda *_: dispatcher.stop()  # noqa: E731
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    metrics.serve(settings, "dispatcher")
    heap.freeze()
    dispatcher.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
