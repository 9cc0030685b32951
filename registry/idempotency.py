"""Answers kept for repeated requests: written in the transaction of their effect, found by whoever asks again.

A request is one effect for a tenant, method, path and key. While its transaction runs an advisory lock marks it as in
flight; when it dies, by an error or a kill, the lock and all it did are gone and a repetition does it anew.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.errors import IdempotencyInFlight, IdempotencyKeyReused

KEPT_FOR: Final = timedelta(hours=24)
RETRIES_FOR: Final = timedelta(seconds=120)
"""How long a request without a key is remembered by its body, for a client that retries by itself."""

_LOCK = text("SELECT pg_try_advisory_xact_lock(:number)")
_FIND = text("""
SELECT fingerprint, status, location, body, is_sealed FROM kept_answers
WHERE tenant_id = :tenant AND scope = :scope AND expires_at > clock_timestamp()
""")
# With `replaces`, the newest request's answer is the one that a retry wants; without, the first stays.
_KEEP = text("""
INSERT INTO kept_answers AS k (tenant_id, scope, fingerprint, status, location, body, is_sealed, expires_at)
VALUES (:tenant, :scope, :fingerprint, :status, :location, :body, :is_sealed, clock_timestamp() + :kept_for)
ON CONFLICT (tenant_id, scope) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status,
    location = excluded.location, body = excluded.body, is_sealed = excluded.is_sealed, created_at = now(),
    expires_at = excluded.expires_at
    WHERE :replaces OR k.expires_at <= clock_timestamp()
RETURNING true
""")
_PURGE = text("""
DELETE FROM kept_answers WHERE (tenant_id, scope) IN (
    SELECT tenant_id, scope FROM kept_answers WHERE expires_at <= clock_timestamp() LIMIT 10000)
""")


@dataclass(frozen=True, slots=True)
class Kept:
    """A kept answer. `body` is JSON, or JSON sealed by `registry.secrets` for `owner(tenant, scope)`."""

    fingerprint: bytes
    status: int
    location: str | None
    body: bytes
    is_sealed: bool


def scope_of(*parts: str) -> bytes:
    """The digest of what makes requests the same one; no part can run into the next."""
    return hashlib.sha256(b"\0".join(hashlib.sha256(part.encode()).digest() for part in parts)).digest()


def owner(tenant_id: str, scope: bytes) -> str:
    """What a sealed answer is bound to."""
    return f"answer {tenant_id} {scope.hex()}"


def lock(session: Session, tenant_id: str, scope: bytes) -> None:
    """Mark the request as in flight until the transaction ends. Raises IdempotencyInFlight when it is already."""
    number = int.from_bytes(scope_of(tenant_id, scope.hex())[:8], "big", signed=True)
    if not session.scalar(_LOCK, {"number": number}):
        raise IdempotencyInFlight("A request with this Idempotency-Key is being answered just now; ask again.")


def find(session: Session, tenant_id: str, scope: bytes, fingerprint: bytes) -> Kept | None:
    """The kept answer. Raises IdempotencyKeyReused when the key was used with another body."""
    row = session.execute(_FIND, {"tenant": tenant_id, "scope": scope}).one_or_none()
    if row is None:
        return None
    kept = Kept(*row)
    if kept.fingerprint != fingerprint:
        raise IdempotencyKeyReused("This Idempotency-Key came with another body before; take a new key for a new body.")
    return kept


def keep(
    session: Session, tenant_id: str, scope: bytes, kept: Kept, *, kept_for: timedelta, replaces: bool = False
) -> bool:
    """Keep an answer until `kept_for` has passed. False: another transaction's is there, and it stays."""
    values = {
        "tenant": tenant_id,
        "scope": scope,
        "fingerprint": kept.fingerprint,
        "status": kept.status,
        "location": kept.location,
        "body": kept.body,
        "is_sealed": kept.is_sealed,
        "kept_for": kept_for,
        "replaces": replaces,
    }
    return session.scalar(_KEEP, values) is not None


def purge(session: Session) -> int:
    """Delete up to 10,000 answers whose time has passed; the number deleted."""
    return int(session.execute(_PURGE).rowcount)  # type: ignore[attr-defined]
