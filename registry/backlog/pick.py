"""The pick: look at the lanes, let `order` choose, dispatch what it chose, charge the tenants; in one transaction.

Work depends on the tenants and adapters that wait and on what is sent, not on the backlog's length: a loose index scan
steps from one (tenant, adapter) to the next and looks at a few jobs of each.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.backlog import counters, order
from registry.backlog.order import Account, Choice, Due, Lane, Pace, Rescued, Scene

ADAPTERS_PER_SLOT = 4
"""Distinct unfinished adapters for each slot of the deployment's workers: more could not be admitted soon."""
UNKNOWN_TOKENS = 256
"""What a job of an adapter without history counts while it is being chosen; the charge is the job's own."""

_LANES = text("""
WITH RECURSIVE pair AS (
    (SELECT tenant_id, adapter_key FROM jobs WHERE deployment = :deployment AND state = 'queued'
     AND NOT waits_for_parts ORDER BY tenant_id, adapter_key LIMIT 1)
    UNION ALL
    SELECT following.tenant_id, following.adapter_key
    FROM pair CROSS JOIN LATERAL (
        SELECT j.tenant_id, j.adapter_key FROM jobs j
        WHERE j.deployment = :deployment AND j.state = 'queued' AND NOT j.waits_for_parts
          AND (j.tenant_id, j.adapter_key) > (pair.tenant_id, pair.adapter_key)
        ORDER BY j.tenant_id, j.adapter_key LIMIT 1) AS following
)
SELECT pair.tenant_id AS tenant, pair.adapter_key AS adapter, heads.priority, heads.seq, heads.waited_s, heads.depth,
       coalesce(lengths.prompt_tokens + lengths.output_tokens, :unknown_tokens) AS cost
FROM pair CROSS JOIN LATERAL (
    SELECT count(*) AS depth, min(priority) AS priority, min(seq) AS seq,
           extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS waited_s
    FROM (SELECT j.priority, j.seq, j.created_at FROM jobs j
          WHERE j.deployment = :deployment AND j.state = 'queued' AND NOT j.waits_for_parts
            AND j.tenant_id = pair.tenant_id AND j.adapter_key = pair.adapter_key
          ORDER BY j.priority, j.seq LIMIT (SELECT greatest(:run, :wanted / count(*)) FROM pair)) AS oldest) AS heads
LEFT JOIN job_lengths lengths ON lengths.deployment = :deployment AND lengths.tenant_id = pair.tenant_id
    AND lengths.adapter_key = pair.adapter_key
WHERE heads.depth > 0
  AND pair.tenant_id NOT IN (SELECT id FROM tenants WHERE paused_at IS NOT NULL)
  AND pair.adapter_key NOT IN (SELECT adapter_id FROM tenant_adapters WHERE paused_at IS NOT NULL)
""")

_IN_FLIGHT = text("""
SELECT DISTINCT tenant_id, adapter_key FROM jobs WHERE deployment = :deployment AND state = 'dispatched'
UNION SELECT DISTINCT tenant_id, adapter_key FROM jobs WHERE deployment = :deployment AND state = 'running'
""")

_NOT_PAUSED = """tenant_id NOT IN (SELECT id FROM tenants WHERE paused_at IS NOT NULL)
  AND adapter_key NOT IN (SELECT adapter_id FROM tenant_adapters WHERE paused_at IS NOT NULL)"""

# Only this module's constants enter the statements' text; a caller's values are bound parameters.
_RESCUED = text(f"""
SELECT id AS job, adapter_key AS adapter FROM jobs
WHERE deployment = :deployment AND rescued AND state = 'queued' AND {_NOT_PAUSED}
ORDER BY seq LIMIT :wanted
""")  # noqa: S608

_DUE = text(f"""
SELECT id AS job, tenant_id AS tenant, adapter_key AS adapter, seq,
       extract(epoch FROM deadline - clock_timestamp())::float8 AS left_s
FROM jobs WHERE deployment = :deployment AND state = 'queued' AND deadline IS NOT NULL
  AND NOT waits_for_parts AND NOT rescued AND {_NOT_PAUSED}
ORDER BY deadline, seq LIMIT :wanted
""")  # noqa: S608

_PLACES = text("""
SELECT coalesce(d.max_loras, max((w.sizing ->> 'max_loras')::integer), 1) AS max_loras, count(w.id) AS workers,
       coalesce(jsonb_agg(w.residency -> 'slots') FILTER (WHERE w.residency ? 'slots'), '[]') AS slots
FROM deployments d LEFT JOIN workers w ON w.deployment = d.name AND w.state = 'ready'
WHERE d.name = :deployment GROUP BY d.max_loras
""")

_DISPATCH = text("""
WITH wanted AS (
    SELECT * FROM unnest(cast(:tenants AS text[]), cast(:adapters AS integer[]), cast(:counts AS integer[]))
        WITH ORDINALITY AS w (tenant, adapter, jobs, place)
), urgent AS (
    SELECT j.id, 0 AS place, u.nth FROM unnest(cast(:urgent AS uuid[])) WITH ORDINALITY AS u (id, nth)
    JOIN jobs j ON j.id = u.id AND j.state = 'queued' FOR UPDATE OF j SKIP LOCKED
), regular AS (
    SELECT head.id, wanted.place, head.priority, head.seq FROM wanted CROSS JOIN LATERAL (
        SELECT j.id, j.priority, j.seq FROM jobs j
        WHERE j.deployment = :deployment AND j.state = 'queued' AND NOT j.waits_for_parts
          AND j.tenant_id = wanted.tenant
          AND j.adapter_key = wanted.adapter AND j.id <> ALL(:urgent)
        ORDER BY j.priority, j.seq LIMIT wanted.jobs FOR UPDATE OF j SKIP LOCKED) AS head
), placed AS (
    SELECT id, row_number() OVER (ORDER BY place, priority, seq) AS place FROM (
        SELECT id, place, 0 AS priority, nth AS seq FROM urgent
        UNION ALL SELECT id, place, priority, seq FROM regular) AS both_kinds
), estimated AS (
    SELECT placed.id, placed.place, least(
        coalesce(octet_length(i.body::text) / 4, 0)
            + least(coalesce((i.body -> 'sampling' ->> 'max_tokens')::integer, 0), ceil(l.output_tokens)), 1e9)::integer
        AS tokens
    FROM placed JOIN jobs j ON j.id = placed.id
    LEFT JOIN job_inputs i ON i.day = (j.created_at AT TIME ZONE 'UTC')::date AND i.job_id = j.id
    LEFT JOIN job_lengths l ON l.deployment = j.deployment AND l.tenant_id = j.tenant_id
        AND l.adapter_key = j.adapter_key
), round AS (SELECT nextval('job_turns') AS number)
UPDATE jobs SET state = 'dispatched', dispatched_at = now(), turn = round.number * 65536 + estimated.place,
    charged = greatest(1, estimated.tokens)
FROM estimated, round WHERE jobs.id = estimated.id AND jobs.state = 'queued'
RETURNING new.id, new.turn, new.tenant_id, new.charged - old.charged AS owed
""")


@dataclass(frozen=True, slots=True)
class Picked:
    """Jobs in the order to send them. The first `hurried` of them are to overtake what was sent before."""

    jobs: Sequence[uuid.UUID] = ()
    hurried: int = 0


def pick(
    session: Session, deployment: str, wanted: int, run: int = 8, pace: Pace | None = None, ahead: int = 0
) -> Picked:
    """Turn up to `wanted` queued jobs into dispatched ones, in the order to send them. See `order` for who is next.

    `ahead`: how many more of tenants that came back from idleness. `run`: the fewest jobs of one lane that are looked
    at, and so may follow each other.
    """
    if wanted + ahead < 1:
        return Picked()
    rows = session.execute(
        _LANES, {"deployment": deployment, "wanted": wanted + ahead, "run": run, "unknown_tokens": UNKNOWN_TOKENS}
    )
    lanes = [Lane(**row._mapping) for row in rows]
    if not lanes:
        return Picked()
    in_flight = session.execute(_IN_FLIGHT, {"deployment": deployment}).all()
    accounts = counters.lifted(
        session, deployment, {lane.tenant: lane.cost for lane in lanes}, {row.tenant_id for row in in_flight}
    )
    scene = _scene(session, deployment, wanted, lanes, accounts, {row.adapter_key for row in in_flight}, pace)
    choice = order.choose(scene, wanted, SystemRandom(), ahead)
    sent = _dispatch(session, deployment, choice) if choice.urgent or choice.lanes else []
    owed: Counter[str] = Counter()
    for row in sent:
        owed[row.tenant_id] += row.owed
    counters.charge(session, deployment, {tenant: n / accounts[tenant].weight for tenant, n in owed.items()})
    if pace is not None:
        pace.note(len(sent), time.monotonic())
    return Picked([row.id for row in sorted(sent, key=lambda row: row.turn)], len(choice.urgent) + choice.ahead)


def _scene(
    session: Session,
    deployment: str,
    wanted: int,
    lanes: list[Lane],
    accounts: dict[str, Account],
    unfinished: set[int],
    pace: Pace | None,
) -> Scene:
    places = session.execute(_PLACES, {"deployment": deployment}).one()
    resident = {adapter for slots in places.slots for adapter in slots}
    rescued = session.execute(_RESCUED, {"deployment": deployment, "wanted": wanted})
    due = session.execute(_DUE, {"deployment": deployment, "wanted": wanted})
    return Scene(
        lanes,
        accounts,
        unfinished=unfinished,
        resident=resident,
        max_unfinished=ADAPTERS_PER_SLOT * places.max_loras * max(1, places.workers),
        rescued=[Rescued(**row._mapping) for row in rescued],
        due=[Due(**row._mapping) for row in due],
        jobs_per_s=pace.jobs_per_s if pace is not None else 0.0,
    )


def _dispatch(session: Session, deployment: str, choice: Choice) -> Sequence[Any]:
    values = {
        "deployment": deployment,
        "urgent": choice.urgent,
        "tenants": [lane.tenant for lane, _ in choice.lanes],
        "adapters": [lane.adapter for lane, _ in choice.lanes],
        "counts": [jobs for _, jobs in choice.lanes],
    }
    return session.execute(_DISPATCH, values).all()
