"""dispatched -> running: a worker takes jobs, and marks those that its engine has got."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

# The lock on the worker's row orders a claim and a death: what a claim got first, the rescue after the death sees.
_CLAIM = text("""
WITH alive AS (
    SELECT id FROM workers WHERE id = :worker AND state IN ('starting', 'ready', 'draining') FOR SHARE
), claimed AS (
    UPDATE jobs SET state = 'running', fence = fence + 1, worker = alive.id, claimed_at = clock_timestamp(),
        waiting_reason = NULL, rescued = false
    FROM alive
    WHERE jobs.id = ANY(:ids) AND jobs.state = 'dispatched' AND jobs.deployment = :deployment
    RETURNING jobs.id, fence, tenant_id, adapter_id, adapter_key, turn, crashes, attempts, created_at, claimed_at,
        overflow
)
SELECT c.id AS job_id, c.fence, c.tenant_id, c.turn, c.crashes, c.attempts, c.overflow, i.body,
       extract(epoch FROM c.claimed_at - c.created_at) * 1000 AS queued_ms,
       a.adapter_id, a.name, a.version, a.path, a.digest, a.state AS adapter_state, l.output_tokens AS expected_output
FROM claimed c
LEFT JOIN job_inputs i ON i.day = (c.created_at AT TIME ZONE 'UTC')::date AND i.job_id = c.id
LEFT JOIN tenant_adapters a ON a.tenant_id = c.tenant_id AND a.adapter_id = c.adapter_id
LEFT JOIN job_lengths l ON l.deployment = :deployment AND l.tenant_id = c.tenant_id AND l.adapter_key = c.adapter_key
ORDER BY c.turn
""")

_START = text("""
UPDATE jobs SET started_at = clock_timestamp(), admit_reason = mine.reason
FROM unnest(cast(:ids AS uuid[]), cast(:fences AS integer[]), cast(:reasons AS text[])) AS mine (id, fence, reason)
WHERE jobs.id = mine.id AND jobs.fence = mine.fence AND jobs.state IN ('running')
RETURNING jobs.id
""")


@dataclass(frozen=True, slots=True)
class ClaimedAdapter:
    """The adapter version of a claimed job."""

    adapter_id: int
    name: str
    version: int
    path: str
    digest: str
    state: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job that is this worker's now. `fence` goes with every later write. `body` None: its text was purged."""

    job_id: uuid.UUID
    fence: int
    tenant_id: str
    turn: int
    crashes: int
    attempts: int
    queued_ms: float
    body: dict[str, Any] | None
    adapter: ClaimedAdapter | None
    overflow: dict[str, Any] | None = None
    """Of a job whose parts are done: what they took together (`registry.transitions.parts`)."""
    expected_output: float | None = None
    """Tokens that this adapter's recent jobs wrote on average; None without history."""


def claim(session: Session, ids: Sequence[uuid.UUID], deployment: str, worker: uuid.UUID) -> list[Claimed]:
    """Take dispatched jobs, oldest turn first. Ids that are not dispatched any more are left out: somebody else's.

    A worker whose row was declared dead or ended gets nothing: nobody would rescue from it a second time.
    """
    rows = session.execute(_CLAIM, {"ids": list(ids), "deployment": deployment, "worker": worker})
    return [_claimed(row._mapping) for row in rows]


def start(
    session: Session, jobs: Sequence[tuple[uuid.UUID, int]], reasons: Sequence[str | None] = ()
) -> set[uuid.UUID]:
    """Mark (id, fence) pairs as being in the engine, and why each was admitted when it was.

    A job left out was cancelled or taken away: do not run it.
    """
    ids, fences = [job_id for job_id, _ in jobs], [fence for _, fence in jobs]
    return set(session.scalars(_START, {"ids": ids, "fences": fences, "reasons": list(reasons)}))


def _claimed(row: Any) -> Claimed:
    adapter = None
    if row["adapter_id"] is not None:
        adapter = ClaimedAdapter(
            row["adapter_id"], row["name"], row["version"], row["path"], row["digest"], row["adapter_state"]
        )
    return Claimed(
        job_id=row["job_id"],
        fence=row["fence"],
        tenant_id=row["tenant_id"],
        turn=row["turn"],
        crashes=row["crashes"],
        attempts=row["attempts"],
        queued_ms=float(row["queued_ms"]),
        body=row["body"],
        adapter=adapter,
        overflow=row["overflow"],
        expected_output=row["expected_output"],
    )
