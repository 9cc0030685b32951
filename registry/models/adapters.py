"""Adapter versions: the seed's `tenant_adapters`, with the columns that identity and safety need beside its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Identity, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created


class Adapter(Base):
    """One immutable version. `adapter_id` is vLLM's integer id and is never used again."""

    __tablename__ = "tenant_adapters"
    __table_args__ = (
        CheckConstraint("version >= 1", name="version_positive"),
        CheckConstraint("rank >= 1", name="rank_positive"),
        CheckConstraint("state IN ('ready', 'quarantined', 'retired')", name="state_known"),
        CheckConstraint("(state = 'ready') = (state_reason IS NULL)", name="state_reason"),
        CheckConstraint("NOT is_active OR state = 'ready'", name="active_is_ready"),
        CheckConstraint("digest ~ '^[0-9a-f]{64}$'", name="digest_sha256"),
        UniqueConstraint("adapter_id"),
        UniqueConstraint("tenant_id", "adapter_id"),
        Index("uq_tenant_adapters_active", "tenant_id", "name", unique=True, postgresql_where=text("is_active")),
        Index("ix_tenant_adapters_route", "base_model", postgresql_where=text("is_active")),
        Index("ix_tenant_adapters_paused", "adapter_id", postgresql_where=text("paused_at IS NOT NULL")),
        Index("ix_tenant_adapters_going", "adapter_id", postgresql_where=text("has_jobs_to_fail")),
    )

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    path: Mapped[str]
    rank: Mapped[int]
    base_model: Mapped[str] = mapped_column(ForeignKey("base_models.name"))
    is_active: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[Created]
    adapter_id: Mapped[int] = mapped_column(Identity(always=True, maxvalue=2**31 - 1))
    digest: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    facts: Mapped[dict[str, Any]]
    base_stated_by: Mapped[str | None]
    state: Mapped[str] = mapped_column(server_default="ready")
    state_reason: Mapped[str | None]
    activated_at: Mapped[datetime | None]
    paused_at: Mapped[datetime | None]
    load_failures: Mapped[int] = mapped_column(server_default="0")
    """How often the engine refused it since `load_failing_since`."""
    load_failing_since: Mapped[datetime | None]
    has_jobs_to_fail: Mapped[bool] = mapped_column(server_default=text("false"))
    """It is out of service, and the dispatcher has still to look for open jobs of it."""
