"""The pick: which queued jobs are sent next, over the whole backlog of a deployment.

Work depends on the tenants and adapters that wait and on what is sent, not on the backlog's length: a loose index scan
steps from one (tenant, adapter) to the next. Ties are broken at random: an order by tenant starved half of 500 tenants.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

_PICK = text("""
WITH RECURSIVE pair AS (
    (SELECT tenant_id, adapter_key FROM jobs WHERE deployment = :deployment AND state = 'queued'
     ORDER BY tenant_id, adapter_key LIMIT 1)
    UNION ALL
    SELECT following.tenant_id, following.adapter_key
    FROM pair CROSS JOIN LATERAL (
        SELECT j.tenant_id, j.adapter_key FROM jobs j
        WHERE j.deployment = :deployment AND j.state = 'queued'
          AND (j.tenant_id, j.adapter_key) > (pair.tenant_id, pair.adapter_key)
        ORDER BY j.tenant_id, j.adapter_key LIMIT 1) AS following
), candidate AS (
    SELECT pair.tenant_id, pair.adapter_key, head.id, head.priority, head.seq,
           min(head.seq) OVER (PARTITION BY pair.tenant_id, pair.adapter_key) AS oldest
    FROM pair CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.seq FROM jobs j
        WHERE j.deployment = :deployment AND j.state = 'queued'
          AND j.tenant_id = pair.tenant_id AND j.adapter_key = pair.adapter_key
        ORDER BY j.priority, j.seq LIMIT :run) AS head
), in_flight AS (
    SELECT tenant_id, count(*) AS jobs FROM (
        SELECT tenant_id FROM jobs WHERE deployment = :deployment AND state = 'dispatched'
        UNION ALL
        SELECT tenant_id FROM jobs WHERE deployment = :deployment AND state = 'running') AS open_jobs
    GROUP BY tenant_id
), ranked AS (
    SELECT candidate.id, row_number() OVER (
        PARTITION BY candidate.tenant_id ORDER BY priority, oldest, adapter_key, seq) AS place,
        candidate.tenant_id
    FROM candidate
), chosen AS (
    SELECT ranked.id, row_number() OVER (
        ORDER BY (coalesce(in_flight.jobs, 0) + ranked.place) / tenants.weight, random()) AS place
    FROM ranked JOIN tenants ON tenants.id = ranked.tenant_id LEFT JOIN in_flight USING (tenant_id)
    ORDER BY place LIMIT :wanted
), locked AS (
    SELECT j.id, chosen.place FROM jobs j JOIN chosen ON chosen.id = j.id
    WHERE j.state = 'queued' FOR UPDATE OF j SKIP LOCKED
), round AS (SELECT nextval('job_turns') AS number)
UPDATE jobs SET state = 'dispatched', dispatched_at = now(), turn = round.number * 65536 + locked.place
FROM locked, round WHERE jobs.id = locked.id AND jobs.state = 'queued'
RETURNING jobs.id, jobs.turn
""")

_LOAD = text("""
SELECT d.name AS deployment,
       EXISTS (SELECT FROM jobs j WHERE j.deployment = d.name AND j.state = 'queued') AS has_queued,
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


@dataclass(frozen=True, slots=True)
class Load:
    """What a deployment has to do and who is there to do it."""

    deployment: str
    has_queued: bool
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


def pick(session: Session, deployment: str, wanted: int, run: int = 8) -> Sequence[uuid.UUID]:
    """Turn up to `wanted` queued jobs into dispatched ones, in the order to send them.

    Tenants take turns by weight, counting what they have in flight; a tenant's adapters come in runs of up to `run`.
    """
    if wanted < 1:
        return []
    rows = session.execute(_PICK, {"deployment": deployment, "wanted": wanted, "run": run}).all()
    return [row.id for row in sorted(rows, key=lambda row: row.turn)]


def loads(session: Session, lease_s: float) -> Sequence[Load]:
    """Every deployment's load, from the partial indexes: cheap at any backlog."""
    return [Load(**row._mapping) for row in session.execute(_LOAD, {"lease_s": lease_s})]


def overdue(session: Session, deployment: str, age_s: float) -> set[uuid.UUID]:
    """Dispatched jobs that nobody has claimed for `age_s`."""
    return set(session.scalars(_OVERDUE, {"deployment": deployment, "age_s": age_s}))


def lengths(session: Session) -> Sequence[Length]:
    """Every deployment's counts. Reads the whole partial index: for status pages, not for every tick."""
    return [Length(**row._mapping) for row in session.execute(_LENGTHS)]
