"""Usage: append-only tallies written with the settling transaction, and the days they are folded into."""

from __future__ import annotations

import uuid
from datetime import date

from sqlalchemy import BigInteger, Identity, Index
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created


class _Counts:
    """The counted quantities, the same in a tally and in a day."""

    succeeded: Mapped[int] = mapped_column(BigInteger, server_default="0")
    failed: Mapped[int] = mapped_column(BigInteger, server_default="0")
    cancelled: Mapped[int] = mapped_column(BigInteger, server_default="0")
    expired: Mapped[int] = mapped_column(BigInteger, server_default="0")
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    output_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    swap_ms: Mapped[float] = mapped_column(server_default="0")
    engine_ms: Mapped[float] = mapped_column(server_default="0")


class Tally(_Counts, Base):
    """One row per settle group and key: no hot rows, no deadlocks. The dispatcher folds and deletes them."""

    __tablename__ = "tallies"
    __table_args__ = (Index("ix_tallies_tenant_id", "tenant_id"),)

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    tenant_id: Mapped[str]
    day: Mapped[date]
    adapter_key: Mapped[int]
    batch_id: Mapped[uuid.UUID | None]
    at: Mapped[Created]
    deployment: Mapped[str | None]
    charged: Mapped[int] = mapped_column(BigInteger, server_default="0")


class UsageDay(_Counts, Base):
    """A tenant's use of one adapter version on one day (UTC). `adapter_key` 0 is the bare base."""

    __tablename__ = "usage_days"

    tenant_id: Mapped[str] = mapped_column(primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    adapter_key: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
