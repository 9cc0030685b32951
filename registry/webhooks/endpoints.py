"""A tenant's receivers: make, change, rotate, disable. A secret is readable when made or rotated, never again."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ScalarSelect, delete, exists, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from registry.errors import Conflict, NotFound
from registry.ids import new_id, to_wire
from registry.models import WebhookEndpoint
from registry.secrets import SecretBox
from registry.webhooks import deliveries

MAX_ENDPOINTS: Final = 50
INLINE_NAME: Final = "webhook_url of jobs and batches"
_OVERLAP = text("now() + interval '24 hours'")

Disabled = Literal["by_tenant", "gone", "failing"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a tenant may choose of an endpoint."""

    name: str
    url: str
    event_types: tuple[str, ...]
    payload: str = "full"
    deliver: str = "events"


def create(session: Session, box: SecretBox, tenant_id: str, wishes: Wishes) -> tuple[WebhookEndpoint, str]:
    """A new endpoint and its secret. Raises Conflict when the tenant has as many as it may."""
    held = session.scalar(select(func.count()).where(WebhookEndpoint.tenant_id == tenant_id)) or 0
    if held >= MAX_ENDPOINTS:
        raise Conflict(f"There are {MAX_ENDPOINTS} webhook endpoints already; delete one first.")
    endpoint_id, secret = new_id(), new_secret()
    row = WebhookEndpoint(
        id=endpoint_id,
        tenant_id=tenant_id,
        name=wishes.name,
        url=wishes.url,
        event_types=list(wishes.event_types),
        payload=wishes.payload,
        deliver=wishes.deliver,
        secret=box.seal(secret, owner(endpoint_id)),
        secret_hint=hint(secret),
    )
    session.add(row)
    session.flush()
    return row, secret


def ensure_inline(session: Session, box: SecretBox, tenant_id: str) -> None:
    """The endpoint that signs for every `webhook_url` of this tenant: made at its first use."""
    has_one = select(WebhookEndpoint.id).where(WebhookEndpoint.tenant_id == tenant_id, WebhookEndpoint.kind == "inline")
    if session.scalar(has_one) is not None:
        return
    endpoint_id, secret = new_id(), new_secret()
    session.execute(
        insert(WebhookEndpoint)
        .values(
            id=endpoint_id,
            tenant_id=tenant_id,
            kind="inline",
            name=INLINE_NAME,
            secret=box.seal(secret, owner(endpoint_id)),
            secret_hint=hint(secret),
        )
        .on_conflict_do_nothing()
    )


def get(session: Session, tenant_id: str, endpoint_id: uuid.UUID) -> WebhookEndpoint:
    """One endpoint. Raises NotFound, the same for missing and foreign."""
    row = session.scalar(
        select(WebhookEndpoint).where(WebhookEndpoint.tenant_id == tenant_id, WebhookEndpoint.id == endpoint_id)
    )
    if row is None:
        raise NotFound("No such webhook endpoint: check the id.")
    return row


def page(session: Session, tenant_id: str, *, after: uuid.UUID | None, limit: int) -> Sequence[WebhookEndpoint]:
    """Newest first, at most `limit` + 1: the extra one says that more follow. Raises NotFound for a foreign `after`."""
    query = select(WebhookEndpoint).where(WebhookEndpoint.tenant_id == tenant_id).order_by(WebhookEndpoint.id.desc())
    if after is not None:
        query = query.where(WebhookEndpoint.id < get(session, tenant_id, after).id)
    return session.scalars(query.limit(limit + 1)).all()


def change(session: Session, tenant_id: str, endpoint_id: uuid.UUID, changes: dict[str, Any]) -> WebhookEndpoint:
    """Set the given columns. Raises NotFound; Conflict for an inline endpoint's URL or events, which jobs carry."""
    row = get(session, tenant_id, endpoint_id)
    if row.kind == "inline" and changes:
        raise Conflict(
            "This endpoint stands for the webhook_url of jobs and batches; only its status and secret change."
        )
    changed = {name: value for name, value in changes.items() if getattr(row, name) != value}
    if changed:
        session.execute(
            update(WebhookEndpoint)
            .where(WebhookEndpoint.tenant_id == tenant_id, WebhookEndpoint.id == endpoint_id)
            .values(**changed, updated_at=func.now())
        )
        session.refresh(row)
    return row


def remove(session: Session, tenant_id: str, endpoint_id: uuid.UUID) -> None:
    """Delete an endpoint with its deliveries. Raises NotFound, Conflict for the inline one."""
    if get(session, tenant_id, endpoint_id).kind == "inline":
        raise Conflict("This endpoint stands for the webhook_url of jobs and batches; disable it instead.")
    session.execute(
        delete(WebhookEndpoint).where(WebhookEndpoint.tenant_id == tenant_id, WebhookEndpoint.id == endpoint_id)
    )


def rotate(
    session: Session, box: SecretBox, tenant_id: str, endpoint_id: uuid.UUID, *, keep_old: bool
) -> tuple[WebhookEndpoint, str]:
    """A new secret. With `keep_old` deliveries carry both signatures for 24 h. Raises NotFound."""
    row = get(session, tenant_id, endpoint_id)
    secret = new_secret()
    session.execute(
        update(WebhookEndpoint)
        .where(WebhookEndpoint.tenant_id == tenant_id, WebhookEndpoint.id == endpoint_id)
        .values(
            old_secret=WebhookEndpoint.secret if keep_old else None,
            old_secret_until=_OVERLAP if keep_old else None,
            secret=box.seal(secret, owner(endpoint_id)),
            secret_hint=hint(secret),
            updated_at=func.now(),
        )
    )
    session.refresh(row)
    return row, secret


def disable(session: Session, tenant_id: str, endpoint_id: uuid.UUID, reason: Disabled) -> None:
    """Send nothing more; what waits becomes a dead letter, which a redelivery by time range finds again."""
    moved = session.execute(
        update(WebhookEndpoint)
        .where(
            WebhookEndpoint.tenant_id == tenant_id,
            WebhookEndpoint.id == endpoint_id,
            WebhookEndpoint.disabled_at.is_(None),
        )
        .values(disabled_at=func.now(), disabled_reason=reason, updated_at=func.now())
        .returning(WebhookEndpoint.id)
    )
    if moved.scalar_one_or_none() is not None:
        deliveries.bury(session, tenant_id, endpoint_id)


def enable(session: Session, tenant_id: str, endpoint_id: uuid.UUID) -> None:
    """Send again from now on; the five days of failures begin anew."""
    session.execute(
        update(WebhookEndpoint)
        .where(
            WebhookEndpoint.tenant_id == tenant_id,
            WebhookEndpoint.id == endpoint_id,
            WebhookEndpoint.disabled_at.is_not(None),
        )
        .values(disabled_at=None, disabled_reason=None, failing_since=None, updated_at=func.now())
    )


def hears_of_jobs(tenant_id: str) -> ScalarSelect[bool]:
    """An expression for `jobs.notify`: whether any endpoint of the tenant wants to hear of single jobs."""
    wanted = text("EXISTS (SELECT FROM unnest(webhook_endpoints.event_types) AS t WHERE t LIKE 'job.%')")
    return select(exists().where(WebhookEndpoint.tenant_id == tenant_id, or_(wanted))).scalar_subquery()


def new_secret() -> str:
    """`whsec_` and the base64 of 32 random bytes, as Standard Webhooks has it."""
    return "whsec_" + base64.b64encode(os.urandom(32)).decode("ascii")


def hint(secret: str) -> str:
    """What may be shown of a secret."""
    return f"whsec_...{secret[-4:]}"


def owner(endpoint_id: uuid.UUID) -> str:
    """Under which name the endpoint's secrets are sealed."""
    return to_wire("we", endpoint_id)
