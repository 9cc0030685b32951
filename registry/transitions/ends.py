"""Ends that no worker brings: cancelled by the tenant, expired, adapter gone. One UPDATE each, from any open state.

Every one writes its tally in the same statement. A worker that has such a job hears of it by a notice.
"""

from __future__ import annotations

import uuid

from sqlalchemy import TextClause, text
from sqlalchemy.orm import Session

from registry import wake
from registry.transitions.tallied import tallied

CHUNK = 5000
"""Jobs ended by one statement at most: some 100 ms, so that the dispatcher's tick goes on."""

# Only this module's constants enter the statements' text; a caller's values are bound parameters.
_CANCEL = text(f"""
WITH ended AS (
    UPDATE jobs SET state = 'cancelled', finished_at = clock_timestamp()
    WHERE tenant_id = :tenant AND id = :id AND state IN ('queued', 'dispatched', 'running')
    RETURNING id, tenant_id, adapter_key, batch_id, parent_id
), counted AS ({tallied("cancelled")})
SELECT id FROM ended
""")  # noqa: S608

_CANCEL_LINES = text(f"""
WITH line AS MATERIALIZED (
    SELECT jobs.id FROM batches JOIN jobs ON jobs.batch_id = batches.id
    WHERE batches.status = 'cancelling' AND jobs.state IN ('queued', 'dispatched', 'running')
    LIMIT {CHUNK} FOR UPDATE OF jobs SKIP LOCKED
), ended AS (
    UPDATE jobs SET state = 'cancelled', finished_at = clock_timestamp() FROM line
    WHERE jobs.id = line.id AND jobs.state IN ('queued', 'dispatched', 'running')
    RETURNING jobs.id, jobs.tenant_id, jobs.adapter_key, jobs.batch_id, jobs.parent_id, jobs.worker
), counted AS ({tallied("cancelled")})
SELECT id, worker FROM ended
""")  # noqa: S608

# In a CTE of its own the limit holds: as a plain subquery it may be run again for every row, and then all expire.
_EXPIRE = text(f"""
WITH due AS MATERIALIZED (
    SELECT id FROM jobs WHERE deadline <= now() AND finished_at IS NULL ORDER BY deadline LIMIT 1000
    FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE jobs SET state = 'expired', finished_at = clock_timestamp() FROM due
    WHERE jobs.id = due.id AND jobs.state IN ('queued', 'dispatched', 'running')
    RETURNING jobs.id, jobs.tenant_id, jobs.adapter_key, jobs.batch_id, jobs.parent_id, jobs.worker
), counted AS ({tallied("expired")})
SELECT id, worker FROM ended
""")  # noqa: S608

# One arm a state: each has an index of its own.
_FAIL_UNAVAILABLE = text(f"""
WITH going AS MATERIALIZED (
    SELECT id FROM jobs WHERE tenant_id = :tenant AND adapter_key = :adapter
        AND (state = 'queued' OR state = 'dispatched' OR state = 'running')
    LIMIT {CHUNK} FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE jobs SET state = 'failed', finished_at = clock_timestamp(), error_code = 'adapter_unavailable',
        error_message = 'The adapter version was retired or quarantined while the job waited; activate another version.'
    FROM going WHERE jobs.id = going.id AND jobs.state IN ('queued', 'dispatched', 'running')
    RETURNING jobs.id, jobs.tenant_id, jobs.adapter_key, jobs.batch_id, jobs.parent_id
), counted AS ({tallied("failed")})
SELECT id FROM ended
""")  # noqa: S608


def cancel(session: Session, tenant_id: str, job_id: uuid.UUID) -> bool:
    """Stop a job, wherever it is. False: it had ended already, or is not this tenant's."""
    row = session.execute(_CANCEL, {"tenant": tenant_id, "id": job_id}).one_or_none()
    return row is not None


def cancel_lines(session: Session) -> int:
    """Stop up to `CHUNK` jobs of batches that are being cancelled; how many. Locked rows are left for the next call."""
    return len(_told(session, _CANCEL_LINES))


def expire(session: Session) -> set[uuid.UUID]:
    """End up to 1000 jobs whose deadline has passed."""
    return _told(session, _EXPIRE)


def fail_unavailable(session: Session, tenant_id: str, adapter_id: int) -> set[uuid.UUID]:
    """Fail up to `CHUNK` open jobs of an adapter version out of service; locked rows are left for the next call."""
    return set(session.scalars(_FAIL_UNAVAILABLE, {"tenant": tenant_id, "adapter": adapter_id}))


def _told(session: Session, statement: TextClause) -> set[uuid.UUID]:
    """Run a statement that ends jobs; if workers had some of them, they hear of it with the commit."""
    rows = session.execute(statement).all()
    if any(row.worker is not None for row in rows):
        session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": wake.CANCELLED})
    return {row.id for row in rows}
