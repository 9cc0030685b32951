"""Why a job waits, in words: what its worker wrote down, and what its row says by itself. No tenant's text or name."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.states import State
from registry.transitions import ALONE_CRASHES

MAX_CHARS = 200
PARTS = "the parts of its document: it is too long, and they run first."

_KEEP = text("""
UPDATE jobs SET waiting_reason = mine.reason
FROM unnest(cast(:ids AS uuid[]), cast(:fences AS integer[]), cast(:reasons AS text[])) AS mine (id, fence, reason)
WHERE jobs.id = mine.id AND jobs.fence = mine.fence AND jobs.state = 'running' AND jobs.started_at IS NULL
RETURNING jobs.id
""")

_PLACES = text("""
SELECT count(*) FILTER (WHERE state = 'ready') AS ready, coalesce(sum(capacity) FILTER (WHERE state = 'ready'), 0) AS
       capacity, coalesce(sum(held) FILTER (WHERE state = 'ready'), 0) AS held
FROM workers WHERE deployment = :deployment AND state IN ('starting', 'ready', 'draining')
""")


def keep(session: Session, reasons: Sequence[tuple[uuid.UUID, int, str]]) -> set[uuid.UUID]:
    """Write (id, fence, reason) of held jobs that have not started; the ids that were still so."""
    values = {
        "ids": [job_id for job_id, _, _ in reasons],
        "fences": [fence for _, fence, _ in reasons],
        "reasons": [reason[:MAX_CHARS] for _, _, reason in reasons],
    }
    return set(session.scalars(_KEEP, values))


def waiting_for(
    state: str,
    started_at: datetime | None,
    reason: str | None,
    crashes: int,
    *,
    in_parts: bool = False,
    rescued: bool = False,
) -> str | None:
    """What an open job waits for; None once it runs or has ended."""
    if state == State.QUEUED and in_parts:
        return PARTS
    if state == State.QUEUED:
        alone = " It will run alone: workers died while it ran." if crashes >= ALONE_CRASHES else ""
        if rescued:
            return "a free worker: the one that had it died, or its engine did, and it goes first." + alone
        return "its turn: tenants take turns by the tokens they were served." + alone
    if state == State.DISPATCHED:
        return "a worker to take it; it was picked and sent."
    if state == State.RUNNING and started_at is None:
        return f"the engine: {reason}." if reason else "the engine: a worker has just taken it."
    return None


def at_deployment(session: Session, deployment: str) -> str:
    """For the operator: who could run a deployment's queued jobs now."""
    places = session.execute(_PLACES, {"deployment": deployment}).one()
    if not places.ready:
        return f"no worker of deployment {deployment} is ready; start one with `lorry worker`."
    return f"{places.ready} ready worker(s) hold {places.held} jobs of the {places.capacity} they may hold."
