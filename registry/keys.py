"""API keys: shown once, stored as SHA-256, revocable.

A key is `lorry_<8 characters to recognise it by>_<43 random characters>`: 256 random bits need no slow hash.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from registry import tenants
from registry.db import open_tenant
from registry.errors import NotFound, Unauthorized
from registry.ids import new_id
from registry.models import ApiKey

_FORM = re.compile(r"lorry_[a-z0-9]{8}_[A-Za-z0-9_-]{43}")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_IS_STALE = func.coalesce(ApiKey.last_used_at < func.now() - timedelta(minutes=1), True)
# Every request begins with this one. As text, because by way of the model it took a tenth of a poll's time.
_KNOWN = text("""
SELECT id, tenant_id, coalesce(last_used_at < now() - interval '1 minute', true) AS is_stale FROM api_keys
WHERE sha256 = :digest AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
""")
_PRESENTED = text("SELECT set_config('lorry.key_sha256', :hash, true)")
_REFUSED = "The API key is missing, unknown, expired or revoked. Send it as `Authorization: Bearer lorry_…`."


@dataclass(frozen=True, slots=True)
class Caller:
    """Who presented a valid key."""

    tenant_id: str
    key_id: uuid.UUID


def create(session: Session, tenant_id: str, name: str, expires_at: datetime | None = None) -> tuple[ApiKey, str]:
    """A new key's row and the key itself, which is nowhere else."""
    tenants.get(session, tenant_id)
    prefix = "lorry_" + "".join(secrets.choice(_ALPHABET) for _ in range(8))
    secret = f"{prefix}_{secrets.token_urlsafe(32)}"
    row = ApiKey(
        id=new_id(), tenant_id=tenant_id, name=name, prefix=prefix, sha256=digest(secret), expires_at=expires_at
    )
    session.add(row)
    session.flush()
    return row, secret


def authenticate(session: Session, presented: str) -> Caller:
    """The caller of a key; its tenant's rows are open for the rest of the transaction, and its use is noted.

    Raises Unauthorized, the same for every reason.
    """
    if not _FORM.fullmatch(presented):
        raise Unauthorized(_REFUSED)
    sha256 = digest(presented)
    session.execute(_PRESENTED, {"hash": sha256.hex()})
    row = session.execute(_KNOWN, {"digest": sha256}).one_or_none()
    if row is None:
        raise Unauthorized(_REFUSED)
    open_tenant(session, row.tenant_id)
    if row.is_stale:
        _note_use(session, row.id)
    return Caller(row.tenant_id, row.id)


def revoke(session: Session, prefix: str) -> ApiKey:
    """Refuse a key from now on. `prefix` is `lorry_` and the 8 characters after it."""
    row = session.execute(
        update(ApiKey)
        .where(ApiKey.prefix == prefix, ApiKey.revoked_at.is_(None))
        .values(revoked_at=func.now())
        .returning(ApiKey)
    ).scalar_one_or_none()
    if row is None:
        raise NotFound(f"No live key {prefix!r}; `lorry keys list` shows the prefixes.", param="prefix")
    return row


def of_tenant(session: Session, tenant_id: str) -> Sequence[ApiKey]:
    """A tenant's keys, newest first, revoked ones included."""
    return session.scalars(select(ApiKey).where(ApiKey.tenant_id == tenant_id).order_by(ApiKey.created_at.desc())).all()


def _note_use(session: Session, key_id: uuid.UUID) -> None:
    """Once a minute is enough; of many requests at that moment one writes and no other waits for it."""
    free = select(ApiKey.id).where(ApiKey.id == key_id, _IS_STALE).with_for_update(skip_locked=True).scalar_subquery()
    session.execute(
        update(ApiKey)
        .where(ApiKey.id == free)
        .values(last_used_at=func.now())
        .execution_options(synchronize_session=False)
    )


def digest(secret: str) -> bytes:
    """By which a key is known everywhere but with its owner."""
    return hashlib.sha256(secret.encode()).digest()
