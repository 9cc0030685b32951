"""What bounds a tenant: its own limits, the counters they are held against, and answers kept for repeated requests."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, SmallInteger
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created


class TenantLimit(Base):
    """An operator's limits for one tenant; null means the installation's default."""

    __tablename__ = "tenant_limits"
    __table_args__ = (
        CheckConstraint(
            "queued_jobs >= 0 AND stored_bytes >= 0 AND posts_per_minute >= 1 AND tokens_per_day >= 0", name="positive"
        ),
    )

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    queued_jobs: Mapped[int | None] = mapped_column(BigInteger)
    stored_bytes: Mapped[int | None] = mapped_column(BigInteger)
    posts_per_minute: Mapped[int | None]
    tokens_per_day: Mapped[int | None] = mapped_column(BigInteger)


class JobsTaken(Base):
    """How many jobs a tenant has ever submitted, counted by a trigger. Its lock orders the tenant's submissions."""

    __tablename__ = "jobs_taken"

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    jobs: Mapped[int] = mapped_column(BigInteger, server_default="0")


class JobsEnded(Base):
    """How many of them have ended, folded from tallies by the dispatcher: no settle and no submission waits for it."""

    __tablename__ = "jobs_ended"

    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    jobs: Mapped[int] = mapped_column(BigInteger, server_default="0")


class PostRate(Base):
    """A leaking bucket a tenant: the moment at which it will be empty. Unlogged: losing it in a crash harms nobody."""

    __tablename__ = "post_rates"
    __table_args__ = ({"prefixes": ["UNLOGGED"]},)

    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    empty_at: Mapped[datetime]


class KeptAnswer(Base):
    """The answer to a POST, written with its effect. `scope` digests method, path and key: no caller's text."""

    __tablename__ = "kept_answers"
    __table_args__ = (
        CheckConstraint("octet_length(scope) = 32 AND octet_length(fingerprint) = 32", name="digests"),
        Index("ix_kept_answers_expires", "expires_at"),
    )

    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"), primary_key=True)
    scope: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    fingerprint: Mapped[bytes] = mapped_column(LargeBinary)
    status: Mapped[int] = mapped_column(SmallInteger)
    location: Mapped[str | None]
    body: Mapped[bytes] = mapped_column(LargeBinary)
    is_sealed: Mapped[bool]
    created_at: Mapped[Created]
    expires_at: Mapped[datetime]
