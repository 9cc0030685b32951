"""What the dispatcher does beside picking, each at its own pace: rescue, re-queue, expire, fold, make tables."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from celery import Celery
from kombu.exceptions import OperationalError as BrokerAway
from redis.exceptions import RedisError
from sqlalchemy import text

from registry import backlog, deployments, ids, presence, queues, tallies, transitions
from registry.logs import get_logger
from registry.settings import Settings
from workers.leader import Leader

_log = get_logger("repair")

DAYS_AHEAD = 7


@dataclass
class Chore:
    """Something that is due every `every_s` seconds."""

    every_s: float
    work: Callable[[Leader], None]
    due_s: float = 0.0

    def run_if_due(self, leader: Leader, now_s: float) -> None:
        """Run when its time has come."""
        if now_s >= self.due_s:
            self.due_s = now_s + self.every_s
            self.work(leader)


def chores(settings: Settings, celery: Celery) -> list[Chore]:
    """All chores of one dispatcher."""
    lost = LostMessages(celery, settings.resend_after_s)
    return [
        Chore(min(1.0, settings.beat_s), lambda leader: rescue(leader, settings.lease_s)),
        Chore(settings.resend_after_s, lost.look),
        Chore(1.0, expire),
        Chore(1.0, fold),
        Chore(3600.0, make_tables),
    ]


def rescue(leader: Leader, lease_s: float) -> None:
    """Queue again what silent workers held."""
    with leader.transaction() as session:
        for worker_id in presence.declare_dead(session, lease_s):
            queued, given_up = transitions.rescue(session, worker_id)
            _log.warning("a worker is dead", worker=str(worker_id), rescued=len(queued), given_up=len(given_up))


def expire(leader: Leader) -> None:
    """End jobs whose deadline has passed."""
    with leader.transaction() as session:
        transitions.expire(session)


def fold(leader: Leader) -> None:
    """Fold tallies into usage."""
    with leader.transaction() as session:
        tallies.fold(session)


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
            missing = {job for name, jobs in overdue.items() if jobs for job in jobs - self._waiting(name)}
        except (BrokerAway, RedisError, OSError):
            return
        lost, self._suspects = missing & self._suspects, missing - self._suspects
        if lost:
            with leader.transaction() as session:
                again = transitions.message_lost(session, list(lost))
            _log.warning("messages were lost; their jobs are queued again", jobs=len(again))

    def _waiting(self, deployment: str) -> set[uuid.UUID]:
        return {ids.from_wire("job", wire_id) for wire_id in queues.waiting_ids(self._celery, deployment)}
