"""Back to queued: handed back by its worker, rescued from a dead one, or its message lost."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Literal

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.transitions.tallied import tallied

ALONE_CRASHES = 2
"""From this many on a job runs alone: of those that were in the engine at one death, hardly any is to blame."""
MAX_CRASHES = 3
"""A job that was in the engine at this many deaths, the last one alone, fails as `worker_lost`."""

WAIT_AGAIN = "state = 'queued', worker = NULL, claimed_at = NULL, started_at = NULL, dispatched_at = NULL, turn = NULL"

# Only this module's constants enter the statements' text; a caller's values are bound parameters.
_HAND_BACK = text(f"""
UPDATE jobs SET {WAIT_AGAIN}, rescued = (:spends = 'crash'), attempts = attempts + (:spends = 'attempt')::int,
    crashes = crashes + (:spends = 'crash')::int
FROM unnest(cast(:ids AS uuid[]), cast(:fences AS integer[])) AS mine (id, fence)
WHERE jobs.id = mine.id AND jobs.fence = mine.fence AND jobs.state IN ('running')
RETURNING jobs.id
""")  # noqa: S608

_RESCUE = text(f"""
UPDATE jobs SET {WAIT_AGAIN}, rescued = true, crashes = crashes + (started_at IS NOT NULL)::int
WHERE worker = :worker AND state IN ('running') AND NOT (started_at IS NOT NULL AND crashes + 1 >= :max_crashes)
RETURNING id
""")  # noqa: S608

_GIVE_UP = text(f"""
WITH ended AS (
    UPDATE jobs SET state = 'failed', finished_at = clock_timestamp(), crashes = crashes + 1,
        error_code = 'worker_lost',
        error_message = 'The worker died each time this job ran, at last with nothing beside it. Change the document.'
    WHERE worker = :worker AND state IN ('running') AND started_at IS NOT NULL AND crashes + 1 >= :max_crashes
    RETURNING id, tenant_id, adapter_key, batch_id, parent_id
), counted AS ({tallied("failed")})
SELECT id FROM ended
""")  # noqa: S608

_LET_GO = text(f"""
UPDATE jobs SET {WAIT_AGAIN} WHERE worker = :worker AND state IN ('running') RETURNING id
""")  # noqa: S608

_UNSEND = text(f"""
UPDATE jobs SET {WAIT_AGAIN}
WHERE state IN ('dispatched') AND (cast(:deployment AS text) IS NULL OR deployment = :deployment)
    AND (cast(:tenant AS text) IS NULL OR tenant_id = :tenant)
    AND (cast(:adapters AS integer[]) IS NULL OR adapter_key = ANY(:adapters))
RETURNING id
""")  # noqa: S608

_MESSAGE_LOST = text(f"""
WITH lost AS MATERIALIZED (
    SELECT id FROM jobs WHERE id = ANY(:ids) AND state = 'dispatched' FOR UPDATE SKIP LOCKED
)
UPDATE jobs SET {WAIT_AGAIN} FROM lost WHERE jobs.id = lost.id AND jobs.state IN ('dispatched') RETURNING jobs.id
""")  # noqa: S608


Spends = Literal["nothing", "attempt", "crash"]


def hand_back(session: Session, jobs: Sequence[tuple[uuid.UUID, int]], *, spends: Spends = "nothing") -> set[uuid.UUID]:
    """Give (id, fence) pairs back: a drain or no room, a request that the engine lost (spends an attempt), an engine
    that died with them inside (counts as a crash; they are rescued, see `rescue`)."""
    ids, fences = [job_id for job_id, _ in jobs], [fence for _, fence in jobs]
    return set(session.scalars(_HAND_BACK, {"ids": ids, "fences": fences, "spends": spends}))


def rescue(session: Session, worker: uuid.UUID) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
    """Take back what a dead worker held: (queued again, given up as `worker_lost`).

    They are picked before all others, and are not charged again: nobody waits for another turn because a worker died.

    A job with `ALONE_CRASHES` runs alone, so one that reaches `MAX_CRASHES` was alone when its worker died.
    """
    given_up = set(session.scalars(_GIVE_UP, {"worker": worker, "max_crashes": MAX_CRASHES}))
    return set(session.scalars(_RESCUE, {"worker": worker, "max_crashes": MAX_CRASHES})), given_up


def let_go(session: Session, worker: uuid.UUID) -> set[uuid.UUID]:
    """Give back, unharmed, all that a worker holds which is about to leave in a hurry and says so itself."""
    return set(session.scalars(_LET_GO, {"worker": worker}))


def unsend(
    session: Session,
    *,
    deployment: str | None = None,
    tenant: str | None = None,
    adapters: Sequence[int] | None = None,
) -> set[uuid.UUID]:
    """Take dispatched jobs back that no worker has claimed; their messages will find nothing. None: any."""
    adapter_keys = None if adapters is None else list(adapters)
    return set(session.scalars(_UNSEND, {"deployment": deployment, "tenant": tenant, "adapters": adapter_keys}))


def message_lost(session: Session, ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Queue dispatched jobs again whose message Redis no longer has. One that somebody has locked is being claimed."""
    return set(session.scalars(_MESSAGE_LOST, {"ids": list(ids)}))
