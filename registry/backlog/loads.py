"""How much every deployment has to do, and who is there to do it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

# Not EXISTS, and in an index's order: a planner without fresh statistics would read the whole backlog to answer.
_LOAD = text("""
SELECT d.name AS deployment,
       d.paused_at IS NULL AND coalesce((SELECT true FROM jobs j WHERE j.deployment = d.name AND j.state = 'queued'
           ORDER BY j.tenant_id, j.adapter_key, j.priority, j.seq LIMIT 1), false) AS has_queued,
       (SELECT count(*) FROM jobs j WHERE j.deployment = d.name AND j.state = 'dispatched') AS dispatched,
       (SELECT count(*) FROM jobs j WHERE j.deployment = d.name AND j.state = 'running') AS running,
       coalesce((SELECT sum(w.capacity) FROM workers w WHERE w.deployment = d.name AND w.state = 'ready'
                 AND w.beat_at > now() - make_interval(secs => :lease_s)), 0) AS capacity
FROM deployments d ORDER BY d.name
""")

_OVERDUE = text("""
SELECT id FROM jobs WHERE deployment = :deployment AND state = 'dispatched'
  AND dispatched_at < now() - make_interval(secs => :age_s) ORDER BY dispatched_at LIMIT 1000
""")

_LENGTHS = text("""
SELECT d.name AS deployment,
       (SELECT count(*) FROM jobs j WHERE j.deployment = d.name AND j.state = 'queued') AS queued,
       (SELECT count(*) FROM jobs j WHERE j.deployment = d.name AND j.state = 'dispatched') AS dispatched,
       (SELECT count(*) FROM jobs j WHERE j.deployment = d.name AND j.state = 'running') AS running
FROM deployments d ORDER BY d.name
""")

_IN_PARTS = text("SELECT true FROM jobs WHERE waits_for_parts LIMIT 1")


@dataclass(frozen=True, slots=True)
class Load:
    """What a deployment has to do and who is there to do it."""

    deployment: str
    has_queued: bool
    """Whether anything waits that may be picked: nothing of a paused deployment may."""
    dispatched: int
    running: int
    capacity: int

    @property
    def busy(self) -> bool:
        """Whether the dispatcher should keep ticking for it."""
        return self.has_queued or self.dispatched > 0 or self.running > 0


@dataclass(frozen=True, slots=True)
class Length:
    """A deployment's jobs by state, for people: counts the whole backlog."""

    deployment: str
    queued: int
    dispatched: int
    running: int


def loads(session: Session, lease_s: float) -> Sequence[Load]:
    """Every deployment's load, from the partial indexes: cheap at any backlog."""
    return [Load(**row._mapping) for row in session.execute(_LOAD, {"lease_s": lease_s})]


def overdue(session: Session, deployment: str, age_s: float) -> set[uuid.UUID]:
    """Dispatched jobs that nobody has claimed for `age_s`."""
    return set(session.scalars(_OVERDUE, {"deployment": deployment, "age_s": age_s}))


def lengths(session: Session) -> Sequence[Length]:
    """Every deployment's counts. Reads the whole partial index: for status pages, not for every tick."""
    return [Length(**row._mapping) for row in session.execute(_LENGTHS)]


def in_parts(session: Session) -> bool:
    """Whether any job waits for its parts: letting them go on is planned over every day's tables, and seldom needed."""
    return bool(session.scalar(_IN_PARTS))
