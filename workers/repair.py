"""What the dispatcher does beside picking, each at its own pace: rescue, re-queue, expire, fold, make tables."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from celery import Celery
from sqlalchemy import text

from registry import adapter_states, backlog, deployments, idempotency, ids, metrics, queues, tallies, transitions
from registry.batches import ends, retention
from registry.logs import get_logger
from registry.settings import Settings
from workers import map_reduce
from workers.couriers import Couriers
from workers.leader import Leader
from workers.rescue import Rescue

_log = get_logger("repair")

DAYS_AHEAD = 7
CHORE_S = 0.25
"""Longest that one chore keeps the dispatcher from its next tick, apart from its last statement."""
SHOW_S = 15.0
END_S = 0.05
"""The same for ending batches, which comes ten times a second."""


@dataclass
class Chore:
    """Something that is due every `every_s` seconds."""

    every_s: float
    work: Callable[[Leader], None]
    due_s: float = 0.0

    @property
    def name(self) -> str:
        """What it does, for the log."""
        return str(getattr(self.work, "__qualname__", self.work))

    def run_if_due(self, leader: Leader, now_s: float) -> None:
        """Run when its time has come."""
        if now_s >= self.due_s:
            self.due_s = now_s + self.every_s
            self.work(leader)


def chores(settings: Settings, celery: Celery, rescue: Rescue) -> list[Chore]:
    """All chores of one dispatcher."""
    lost = LostMessages(celery, settings.resend_after_s)
    couriers = Couriers(celery, resend_after_s=settings.resend_after_s, lease_s=settings.lease_s)
    return [
        Chore(min(1.0, settings.beat_s), rescue.look),
        Chore(settings.resend_after_s / 2, lost.look),
        Chore(0.1, cancel_lines),
        Chore(0.5, fail_gone),
        Chore(0.2, map_reduce.advance),
        Chore(1.0, expire),
        Chore(1.0, fold),
        Chore(0.1, EndBatches(settings.retention_days).look),
        Chore(0.2, couriers.send),
        Chore(1.0, couriers.cut),
        Chore(settings.resend_after_s, couriers.repair),
        Chore(60.0, couriers.forget),
        Chore(30.0, forget_answers),
        *([Chore(SHOW_S, show_backlog)] if settings.metrics_port is not None else []),
        Chore(3600.0, make_tables),
        Chore(60.0, lambda leader: forget(leader, settings.retention_days)),
    ]


def repeated(step: Callable[[], bool], for_s: float = CHORE_S) -> None:
    """Run a step until it says that nothing is left, or for as long as the tick can do without us."""
    until_s = time.monotonic() + for_s
    while step() and time.monotonic() < until_s:
        pass


def cancel_lines(leader: Leader) -> None:
    """End the open lines of batches that are being cancelled."""

    def step() -> bool:
        with leader.transaction() as session:
            return transitions.cancel_lines(session) > 0

    repeated(step)


def fail_gone(leader: Leader) -> None:
    """End the open jobs of adapter versions that were retired or quarantined."""

    def step() -> bool:
        with leader.transaction() as session:
            return adapter_states.fail_jobs_of_the_gone(session)

    repeated(step)


def expire(leader: Leader) -> None:
    """End jobs whose deadline has passed."""

    def step() -> bool:
        with leader.transaction() as session:
            return len(transitions.expire(session)) > 0

    repeated(step)


def fold(leader: Leader) -> None:
    """Fold tallies into usage and batches, and let go on the batches whose lines are all counted."""

    def step() -> bool:
        with leader.transaction() as session:
            return tallies.fold(session) > 0

    repeated(step)
    with leader.transaction() as session:
        ends.finalize(session)


class EndBatches:
    """Gives the batches whose lines are all counted their files and their end."""

    def __init__(self, retention_days: int) -> None:
        self._ender = ends.Ender(timedelta(days=retention_days))

    def look(self, leader: Leader) -> None:
        """Small batches at once, a large one in as many looks as it takes."""

        def step() -> bool:
            with leader.transaction() as session:
                return self._ender.step(session)

        repeated(step, END_S)


def forget(leader: Leader, retention_days: int) -> None:
    """Delete what is older than the installation keeps things, a chunk of each kind at a time."""

    def step() -> bool:
        with leader.transaction() as session:
            more, paths = retention.delete_rows(session, retention_days)
        retention.unlink(paths)
        return more

    with leader.transaction() as session:
        dropped = retention.drop_days(session, retention_days)
    if dropped:
        _log.info("days of texts were dropped", tables=dropped)
    repeated(step)


def forget_answers(leader: Leader) -> None:
    """Delete kept answers that no repeated request gets any more."""
    with leader.transaction() as session:
        idempotency.purge(session)


def show_backlog(leader: Leader) -> None:
    """Count what waits, for the metrics: reads the whole index of it, so seldom."""
    with leader.transaction() as session:
        for length in backlog.lengths(session):
            metrics.BACKLOG.labels(length.deployment).set(length.queued)


def make_tables(leader: Leader) -> None:
    """Tables for the texts of the coming days."""
    with leader.transaction() as session:
        session.execute(
            text("SELECT lorry_make_partitions((now() AT TIME ZONE 'UTC')::date, :days)"), {"days": DAYS_AHEAD}
        )


class LostMessages:
    """Finds dispatched jobs whose message is in no queue, twice in a row: never by age alone.

    A message that a worker has taken but not yet claimed for is in no queue either; that lasts milliseconds, and should
    it last longer, the second message finds the job taken.
    """

    def __init__(self, celery: Celery, age_s: float) -> None:
        self._celery = celery
        self._age_s = age_s
        self._suspects: set[uuid.UUID] = set()

    def look(self, leader: Leader) -> None:
        """Queue again what was missing at this look and at the one before."""
        with leader.transaction() as session:
            names = deployments.names(session)
            overdue = {name: backlog.overdue(session, name, self._age_s) for name in names}
        try:
            missing = {job for name, jobs in overdue.items() if jobs for job in self._missing(name, jobs)}
        except queues.AWAY:
            return
        lost, self._suspects = missing & self._suspects, missing - self._suspects
        if lost:
            with leader.transaction() as session:
                again = transitions.message_lost(session, list(lost))
            _log.warning("messages were lost; their jobs are queued again", jobs=len(again))

    def _missing(self, deployment: str, jobs: set[uuid.UUID]) -> set[uuid.UUID]:
        """By wire id: whatever else lies in the queue need not be one."""
        waiting = queues.waiting_ids(self._celery, deployment)
        return {job for job in jobs if ids.to_wire("job", job) not in waiting}
