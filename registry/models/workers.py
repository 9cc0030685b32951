"""Worker rows, an incarnation each, alive by the database's clock; and when the database came out of a backup."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created, PrimaryUuid


class Worker(Base):
    """One start of one worker process. Ended rows stay a day for the operator."""

    __tablename__ = "workers"
    __table_args__ = (
        CheckConstraint("state IN ('starting', 'ready', 'draining', 'ended', 'dead')", name="state_known"),
        CheckConstraint("capacity >= 1", name="capacity"),
        Index("ix_workers_alive", "deployment", postgresql_where=text("state IN ('starting', 'ready', 'draining')")),
    )

    id: Mapped[PrimaryUuid]
    name: Mapped[str]
    deployment: Mapped[str] = mapped_column(ForeignKey("deployments.name", ondelete="CASCADE"))
    host: Mapped[str]
    pid: Mapped[int]
    capacity: Mapped[int]
    state: Mapped[str] = mapped_column(server_default="starting")
    held: Mapped[int] = mapped_column(server_default="0")
    live: Mapped[int] = mapped_column(server_default="0")
    residency: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    started_at: Mapped[Created]
    beat_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
    sizing: Mapped[dict[str, Any] | None]
    drain_requested_at: Mapped[datetime | None]


class Restore(Base):
    """This database came out of a backup at this time: what is older may have gone on without it."""

    __tablename__ = "restores"

    restored_at: Mapped[datetime] = mapped_column(primary_key=True, server_default=text("now()"))
