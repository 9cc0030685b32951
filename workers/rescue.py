"""Taking back what dead workers held, when it is sure that their silence is their own."""

from __future__ import annotations

import time
import uuid

from sqlalchemy import text

from registry import metrics, presence, transitions
from registry.errors import Unavailable
from registry.logs import get_logger
from workers.leader import Leader

_log = get_logger("rescue")


class Rescue:
    """Rescues once the registry has been within reach for a whole lease: nobody can beat while it is away.

    The server tells when it was started anew; that it hung, or could not be reached, shows as a gap between two looks.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._seen_s: float | None = None
        self._steady_from_s = float("-inf")

    def seen(self, now_s: float) -> None:
        """The registry answered just now, to a leader or to a spare."""
        if self._seen_s is not None and now_s - self._seen_s > self._lease_s / 2:
            self._steady_from_s = now_s
            _log.warning("the registry was out of reach; nobody is rescued for a lease", lease_s=self._lease_s)
        self._seen_s = now_s

    def look(self, leader: Leader) -> None:
        """Queue again what silent workers held, if silence can be their own fault."""
        with leader.transaction() as session:
            session.execute(text("SELECT 1"))
        now_s = time.monotonic()
        self.seen(now_s)
        if now_s - self._steady_from_s >= self._lease_s:
            take_back(leader, self._lease_s)


def take_back(leader: Leader, lease_s: float) -> None:
    """Queue again what silent workers held. Each by itself: one that froze in a transaction keeps its locks for a
    while, and must not keep the others' jobs."""
    with leader.transaction() as session:
        silent = presence.silent(session, lease_s)
    for worker_id in silent:
        try:
            _take_back(leader, worker_id, lease_s)
        except Unavailable:
            if not leader.leads:
                raise
            _log.warning("a dead worker still holds locks; it is tried again", worker=str(worker_id))


def _take_back(leader: Leader, worker_id: uuid.UUID, lease_s: float) -> None:
    with leader.transaction() as session:
        if presence.declare_dead(session, worker_id, lease_s):
            queued, given_up = transitions.rescue(session, worker_id)
            metrics.RESCUES.inc()
            _log.warning("a worker is dead", worker=str(worker_id), rescued=len(queued), given_up=len(given_up))
