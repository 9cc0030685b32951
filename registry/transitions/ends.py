"""Ends that no worker brings: cancelled by the tenant, expired, adapter gone. One UPDATE each, from any open state."""

from __future__ import annotations

import uuid

from sqlalchemy import text
from sqlalchemy.orm import Session

_CANCEL = text("""
UPDATE jobs SET state = 'cancelled', finished_at = clock_timestamp()
WHERE tenant_id = :tenant AND id = :id AND state IN ('queued', 'dispatched', 'running')
RETURNING id
""")

# In a CTE of its own the limit holds: as a plain subquery it may be run again for every row, and then all expire.
_EXPIRE = text("""
WITH due AS MATERIALIZED (
    SELECT id FROM jobs WHERE deadline <= now() AND finished_at IS NULL ORDER BY deadline LIMIT 1000
    FOR UPDATE SKIP LOCKED
)
UPDATE jobs SET state = 'expired', finished_at = clock_timestamp() FROM due
WHERE jobs.id = due.id AND jobs.state IN ('queued', 'dispatched', 'running')
RETURNING jobs.id
""")

_FAIL_UNAVAILABLE = text("""
UPDATE jobs SET state = 'failed', finished_at = clock_timestamp(), error_code = 'adapter_unavailable',
    error_message = 'The adapter version was retired or quarantined while the job waited; activate another version.'
WHERE tenant_id = :tenant AND adapter_key = :adapter AND state IN ('queued', 'dispatched', 'running')
RETURNING id
""")


def cancel(session: Session, tenant_id: str, job_id: uuid.UUID) -> bool:
    """Stop a job, wherever it is. False: it had ended already, or is not this tenant's."""
    row = session.execute(_CANCEL, {"tenant": tenant_id, "id": job_id}).one_or_none()
    return row is not None


def expire(session: Session) -> set[uuid.UUID]:
    """End up to 1000 jobs whose deadline has passed."""
    return set(session.scalars(_EXPIRE))


def fail_unavailable(session: Session, tenant_id: str, adapter_id: int) -> set[uuid.UUID]:
    """Fail every open job of an adapter version that is retired or quarantined."""
    return set(session.scalars(_FAIL_UNAVAILABLE, {"tenant": tenant_id, "adapter": adapter_id}))
