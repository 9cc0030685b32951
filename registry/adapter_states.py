"""Adapter versions in and out of service: retired by an operator, quarantined for what they did, released again.

Every change is one guarded UPDATE under the lock that orders registering and activating. Open jobs of a version out of
service fail at once; those beyond the first few thousand by the dispatcher, and one submitted meanwhile at its claim.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry import adapters, transitions, wake
from registry.errors import Conflict
from registry.models import Adapter

WINDOW_S = 3600.0
"""Failed loads further apart than this do not add up."""

_SET_ASIDE = text("""
UPDATE tenant_adapters SET state = :state, state_reason = :reason, is_active = false, has_jobs_to_fail = true
WHERE tenant_id = :tenant AND name = :name AND version = :version AND state = 'ready' RETURNING adapter_id
""")

_RELEASE = text("""
UPDATE tenant_adapters SET state = 'ready', state_reason = NULL, load_failures = 0, load_failing_since = NULL,
    has_jobs_to_fail = false
WHERE tenant_id = :tenant AND name = :name AND version = :version AND state <> 'ready' RETURNING adapter_id
""")

_COUNT_FAILURE = text("""
UPDATE tenant_adapters SET
    load_failures = 1 + CASE WHEN load_failing_since > now() - make_interval(secs => :window_s)
        THEN load_failures ELSE 0 END,
    load_failing_since = CASE WHEN load_failing_since > now() - make_interval(secs => :window_s)
        THEN load_failing_since ELSE now() END
WHERE tenant_id = :tenant AND adapter_id = :adapter AND state = 'ready' RETURNING name, version, load_failures
""")

_GOING = text("SELECT tenant_id, adapter_id FROM tenant_adapters WHERE has_jobs_to_fail ORDER BY adapter_id LIMIT 100")
# One arm a state: each has an index of its own. Rows that somebody holds locked were passed over, and count.
_GONE = text("""
UPDATE tenant_adapters SET has_jobs_to_fail = false WHERE tenant_id = :tenant AND adapter_id = :adapter AND NOT EXISTS (
    SELECT FROM jobs WHERE tenant_id = :tenant AND adapter_key = :adapter
        AND (state = 'queued' OR state = 'dispatched' OR state = 'running'))
""")


def quarantine(session: Session, tenant_id: str, name: str, version: int, reason: str) -> bool:
    """Take a version out of service for what it did, and fail its open jobs. False: it is out of service already."""
    return _set_aside(session, "quarantined", tenant_id, name, version, reason)


def retire(session: Session, tenant_id: str, name: str, version: int, reason: str) -> bool:
    """Take a version out of service for good, as `quarantine` does."""
    return _set_aside(session, "retired", tenant_id, name, version, reason)


def release(session: Session, tenant_id: str, name: str, version: int) -> Adapter:
    """Let a version serve again; it is not active until somebody activates it. Raises NotFound, Conflict."""
    adapters.lock_name(session, tenant_id, name)
    row = adapters.get(session, tenant_id, name, version)
    if session.execute(_RELEASE, {"tenant": tenant_id, "name": name, "version": version}).one_or_none() is None:
        raise Conflict(f"{name}@{version} is in service: there is nothing to release.")
    session.refresh(row)
    return row


def count_load_failure(session: Session, tenant_id: str, adapter_id: int, reason: str, *, limit: int) -> bool:
    """The engine refused a version. True: once too often, it is quarantined now, with the engine's words."""
    values = {"tenant": tenant_id, "adapter": adapter_id, "window_s": WINDOW_S}
    counted = session.execute(_COUNT_FAILURE, values).one_or_none()
    if counted is None or counted.load_failures < limit:
        return False
    return quarantine(session, tenant_id, counted.name, counted.version, reason)


def fail_jobs_of_the_gone(session: Session) -> bool:
    """Fail open jobs of versions out of service, a chunk of each. False: none are left."""
    going = session.execute(_GOING).all()
    return sum(_fail_jobs(session, row.tenant_id, row.adapter_id) for row in going) > 0


def _set_aside(session: Session, state: str, tenant_id: str, name: str, version: int, reason: str) -> bool:
    adapters.lock_name(session, tenant_id, name)
    values = {"state": state, "reason": reason, "tenant": tenant_id, "name": name, "version": version}
    adapter_id = session.execute(_SET_ASIDE, values).scalar_one_or_none()
    if adapter_id is None:
        return False
    _fail_jobs(session, tenant_id, adapter_id)
    return True


def _fail_jobs(session: Session, tenant_id: str, adapter_id: int) -> int:
    """Workers that hold some of them hear of it with the commit; when a look finds none, nobody looks again."""
    failed = transitions.fail_unavailable(session, tenant_id, adapter_id)
    if not failed:
        session.execute(_GONE, {"tenant": tenant_id, "adapter": adapter_id})
    session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": wake.CANCELLED})
    return len(failed)
