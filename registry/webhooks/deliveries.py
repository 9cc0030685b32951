"""Deliveries as their tenant and the API see them: the log, sending again, test events, dead letters, retention."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from registry.errors import NotFound
from registry.ids import new_id
from registry.models import WebhookDelivery, WebhookEndpoint
from registry.webhooks.schedule import WAITS_S

KEPT_DAYS: Final = 30
MAX_REPLAY: Final = 10_000
_PURGE_CHUNK: Final = 5000

# The id is the time: a version 7 uuid made thirty days ago sorts after everything older.
_PURGE = text("""
WITH old AS MATERIALIZED (
    SELECT id FROM webhook_deliveries WHERE id < uuidv7(make_interval(days => -:days))
    ORDER BY id LIMIT :chunk FOR UPDATE SKIP LOCKED
)
DELETE FROM webhook_deliveries USING old WHERE webhook_deliveries.id = old.id RETURNING old.id
""")

_AGAIN = {"state": "pending", "due_at": func.now(), "failures": 0}
_AT_REST = ("pending", "delivered", "exhausted")


def get(session: Session, tenant_id: str, endpoint_id: uuid.UUID, delivery_id: uuid.UUID) -> WebhookDelivery:
    """One delivery of one endpoint. Raises NotFound."""
    row = session.scalar(
        select(WebhookDelivery).where(
            WebhookDelivery.tenant_id == tenant_id,
            WebhookDelivery.endpoint_id == endpoint_id,
            WebhookDelivery.id == delivery_id,
        )
    )
    if row is None:
        raise NotFound("No such delivery: check the id.")
    return row


def page(
    session: Session,
    tenant_id: str,
    endpoint_id: uuid.UUID,
    *,
    after: uuid.UUID | None,
    limit: int,
    status: str | None,
) -> Sequence[WebhookDelivery]:
    """The log of an endpoint, newest first, at most `limit` + 1. Raises NotFound for a foreign `after`."""
    query = (
        select(WebhookDelivery)
        .where(WebhookDelivery.tenant_id == tenant_id, WebhookDelivery.endpoint_id == endpoint_id)
        .order_by(WebhookDelivery.id.desc())
        .limit(limit + 1)
    )
    if after is not None:
        query = query.where(WebhookDelivery.id < get(session, tenant_id, endpoint_id, after).id)
    if status == "sending":
        query = query.where(WebhookDelivery.state.in_(("sent", "sending")))
    elif status is not None:
        query = query.where(WebhookDelivery.state == status)
    return session.scalars(query).all()


def add_test(session: Session, endpoint: WebhookEndpoint, event_type: str) -> uuid.UUID:
    """A sample of an event for one endpoint, tried once: it counts as having failed before."""
    delivery_id = new_id()
    session.add(
        WebhookDelivery(
            id=delivery_id,
            tenant_id=endpoint.tenant_id,
            endpoint_id=endpoint.id,
            type=event_type,
            lane=str(endpoint.id),
            failures=len(WAITS_S),
        )
    )
    session.flush()
    return delivery_id


def redeliver(session: Session, tenant_id: str, endpoint_id: uuid.UUID, delivery_id: uuid.UUID) -> WebhookDelivery:
    """Send once more, now, under the same id, whatever came of it; what is under way stays so. Raises NotFound."""
    row = get(session, tenant_id, endpoint_id, delivery_id)
    session.execute(
        update(WebhookDelivery)
        .where(
            WebhookDelivery.tenant_id == tenant_id,
            WebhookDelivery.id == delivery_id,
            WebhookDelivery.state.in_(_AT_REST),
        )
        .values(_AGAIN)
    )
    session.refresh(row)
    return row


def replay(
    session: Session,
    tenant_id: str,
    endpoint_id: uuid.UUID,
    since: datetime,
    until: datetime | None,
    status: Literal["exhausted", "all"],
) -> int:
    """Send again what was created in a time range, oldest first, at most `MAX_REPLAY`; how many."""
    chosen = (
        select(WebhookDelivery.id)
        .where(
            WebhookDelivery.tenant_id == tenant_id,
            WebhookDelivery.endpoint_id == endpoint_id,
            WebhookDelivery.created_at >= since,
            WebhookDelivery.state.in_(("exhausted",) if status == "exhausted" else _AT_REST),
        )
        .order_by(WebhookDelivery.id)
        .limit(MAX_REPLAY)
    )
    if until is not None:
        chosen = chosen.where(WebhookDelivery.created_at < until)
    moved = update(WebhookDelivery).where(WebhookDelivery.id.in_(chosen), WebhookDelivery.state.in_(_AT_REST))
    return len(session.scalars(moved.values(_AGAIN).returning(WebhookDelivery.id)).all())


def bury(session: Session, tenant_id: str, endpoint_id: uuid.UUID) -> None:
    """Turn what waits for a disabled endpoint into dead letters."""
    session.execute(
        update(WebhookDelivery)
        .where(
            WebhookDelivery.tenant_id == tenant_id,
            WebhookDelivery.endpoint_id == endpoint_id,
            WebhookDelivery.state == "pending",
        )
        .values(state="exhausted")
    )


def purge(session: Session, days: int = KEPT_DAYS) -> int:
    """Forget deliveries older than `days`, up to a chunk of them; how many."""
    return len(session.scalars(_PURGE, {"days": days, "chunk": _PURGE_CHUNK}).all())
