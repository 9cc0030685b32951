"""Webhooks: who wants to hear, what is to be delivered and how each attempt went, batches that are streamed."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, CheckConstraint, ForeignKey, Index, Integer, Text, func, text
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created, PrimaryUuid

DELIVERY_STATES = ("pending", "sent", "sending", "delivered", "exhausted")
"""`sent`: its id is in the queue; `sending`: an io worker holds it; `exhausted`: the dead letter."""


class WebhookEndpoint(Base):
    """A tenant's receiver. The one of kind `inline` stands for every `webhook_url` given with a job or batch."""

    __tablename__ = "webhook_endpoints"
    __table_args__ = (
        CheckConstraint("kind IN ('registered', 'inline')", name="kind_known"),
        CheckConstraint("(url IS NULL) = (kind = 'inline')", name="inline_has_no_url"),
        CheckConstraint("payload IN ('full', 'thin')", name="payload_known"),
        CheckConstraint("deliver IN ('events', 'results')", name="deliver_known"),
        CheckConstraint("(old_secret IS NULL) = (old_secret_until IS NULL)", name="old_secret_ends"),
        CheckConstraint("(disabled_at IS NULL) = (disabled_reason IS NULL)", name="disabled_has_reason"),
        Index("ix_webhook_endpoints_tenant", "tenant_id", "id"),
        Index("uq_webhook_endpoints_inline", "tenant_id", unique=True, postgresql_where=text("kind = 'inline'")),
    )

    id: Mapped[PrimaryUuid]
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    kind: Mapped[str] = mapped_column(server_default="registered")
    name: Mapped[str]
    url: Mapped[str | None]
    event_types: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))
    payload: Mapped[str] = mapped_column(server_default="full")
    deliver: Mapped[str] = mapped_column(server_default="events")
    secret: Mapped[bytes]
    secret_hint: Mapped[str]
    old_secret: Mapped[bytes | None]
    old_secret_until: Mapped[datetime | None]
    failing_since: Mapped[datetime | None]
    disabled_at: Mapped[datetime | None]
    disabled_reason: Mapped[str | None]
    created_at: Mapped[Created]
    updated_at: Mapped[Created]


class WebhookDelivery(Base):
    """One event for one endpoint; its id is the event's. `log` has the last attempts: codes and times, no texts."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        CheckConstraint(f"state IN ({', '.join(repr(s) for s in DELIVERY_STATES)})", name="state_known"),
        CheckConstraint("state <> 'delivered' OR delivered_at IS NOT NULL", name="delivered"),
        CheckConstraint("(chunk_no IS NULL) = (lines IS NULL)", name="chunk"),
        Index("ix_webhook_deliveries_due", "lane", "due_at", postgresql_where=text("state = 'pending'")),
        Index(
            "ix_webhook_deliveries_flying",
            "state",
            "tenant_id",
            "lane",
            postgresql_where=text("state IN ('sent', 'sending')"),
        ),
        Index("ix_webhook_deliveries_log", "endpoint_id", "id"),
    )

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, server_default=text("uuidv7()"))
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    endpoint_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("webhook_endpoints.id", ondelete="CASCADE"))
    type: Mapped[str]
    subject: Mapped[uuid.UUID | None]
    url: Mapped[str | None]
    lane: Mapped[str]
    chunk_no: Mapped[int | None]
    lines: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    is_last: Mapped[bool] = mapped_column(server_default=text("false"))
    state: Mapped[str] = mapped_column(server_default="pending")
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())
    sent_at: Mapped[datetime | None]
    claimed_at: Mapped[datetime | None]
    fence: Mapped[int] = mapped_column(server_default="0")
    attempts: Mapped[int] = mapped_column(server_default="0")
    failures: Mapped[int] = mapped_column(server_default="0")
    log: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    created_at: Mapped[Created]
    delivered_at: Mapped[datetime | None]


class WebhookStream(Base):
    """A batch whose finished lines go to an endpoint in numbered chunks; gone once the last chunk is cut."""

    __tablename__ = "webhook_streams"

    endpoint_id: Mapped[uuid.UUID] = mapped_column(
        ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), primary_key=True
    )
    batch_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True)
    tenant_id: Mapped[str]
    chunks: Mapped[int] = mapped_column(server_default="0")
    cursor_at: Mapped[datetime | None]
    cursor_line: Mapped[int | None]
