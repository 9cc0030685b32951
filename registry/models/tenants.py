"""Tenants and their API keys."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created, PrimaryUuid


class Tenant(Base):
    """A customer. `weight` is its share of service when everybody waits."""

    __tablename__ = "tenants"
    __table_args__ = (
        CheckConstraint("weight > 0", name="weight_positive"),
        CheckConstraint("id ~ '^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$'", name="id_slug"),
        Index("ix_tenants_paused", "id", postgresql_where=text("paused_at IS NOT NULL")),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    weight: Mapped[float] = mapped_column(server_default="1")
    created_at: Mapped[Created]
    paused_at: Mapped[datetime | None]


class ApiKey(Base):
    """A key, known only by its prefix and SHA-256: the key itself is shown once."""

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint("octet_length(sha256) = 32", name="sha256_length"),
        Index("uq_api_keys_sha256", "sha256", unique=True),
        Index("ix_api_keys_tenant_id", "tenant_id"),
    )

    id: Mapped[PrimaryUuid]
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    name: Mapped[str]
    prefix: Mapped[str]
    sha256: Mapped[bytes]
    created_at: Mapped[Created]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
