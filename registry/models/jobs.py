"""Jobs: a narrow row that changes often, and the texts apart, partitioned by day so that retention drops tables."""

from __future__ import annotations

import uuid
from datetime import date, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Computed,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    SmallInteger,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created, PrimaryUuid
from registry.states import TERMINAL, State

_STATES = ", ".join(f"'{state}'" for state in State)
_TERMINAL = ", ".join(f"'{state}'" for state in State if state in TERMINAL)
_NOT_WAITING = "state NOT IN ('queued', 'dispatched')"
_QUEUED = text("state = 'queued'")


class Job(Base):
    """One document against one adapter version, or against the bare base (`adapter_id` null, `adapter_key` 0)."""

    __tablename__ = "jobs"
    __table_args__ = (
        ForeignKeyConstraint(["tenant_id", "adapter_id"], ["tenant_adapters.tenant_id", "tenant_adapters.adapter_id"]),
        CheckConstraint(f"state IN ({_STATES})", name="state_known"),
        CheckConstraint("state <> 'running' OR worker IS NOT NULL", name="running_has_worker"),
        CheckConstraint(f"{_NOT_WAITING} OR (started_at IS NULL AND worker IS NULL)", name="waiting_not_started"),
        CheckConstraint(f"(finished_at IS NOT NULL) = (state IN ({_TERMINAL}))", name="finished"),
        CheckConstraint("(error_code IS NOT NULL) = (state = 'failed')", name="failed_has_code"),
        CheckConstraint("(batch_id IS NULL) = (line_no IS NULL)", name="line_of_batch"),
        CheckConstraint("(parent_id IS NULL) = (part_no IS NULL)", name="part_of_parent"),
        CheckConstraint("NOT waits_for_parts OR state NOT IN ('dispatched', 'running')", name="waits_in_the_backlog"),
        CheckConstraint("fence >= 0 AND crashes >= 0 AND attempts >= 0", name="counters"),
        CheckConstraint(
            "char_length(waiting_reason) <= 200 AND char_length(admit_reason) <= 200", name="reasons_short"
        ),
        Index("ix_jobs_backlog", "deployment", "tenant_id", "adapter_key", "priority", "seq", postgresql_where=_QUEUED),
        Index("ix_jobs_dispatched", "deployment", "dispatched_at", postgresql_where=text("state = 'dispatched'")),
        Index("ix_jobs_running", "worker", postgresql_where=text("state = 'running'")),
        Index("ix_jobs_deadline", "deadline", postgresql_where=text("deadline IS NOT NULL AND finished_at IS NULL")),
        Index(
            "ix_jobs_due",
            "deployment",
            "deadline",
            "seq",
            postgresql_where=text("state = 'queued' AND deadline IS NOT NULL"),
        ),
        Index("ix_jobs_rescued", "deployment", "seq", postgresql_where=text("rescued AND state = 'queued'")),
        Index("uq_jobs_batch_line", "batch_id", "line_no", unique=True, postgresql_where=text("batch_id IS NOT NULL")),
        Index("ix_jobs_parts", "parent_id", postgresql_where=text("parent_id IS NOT NULL")),
        Index("ix_jobs_waits_for_parts", "id", postgresql_where=text("waits_for_parts")),
        Index("ix_jobs_tenant_seq", "tenant_id", "seq"),
        Index(
            "ix_jobs_batch_finished",
            "batch_id",
            "finished_at",
            "line_no",
            postgresql_where=text("batch_id IS NOT NULL AND finished_at IS NOT NULL"),
        ),
        {"postgresql_with": {"fillfactor": "80"}},
    )

    id: Mapped[PrimaryUuid]
    seq: Mapped[int] = mapped_column(BigInteger, Identity(always=True))
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    deployment: Mapped[str] = mapped_column(ForeignKey("deployments.name"))
    adapter_id: Mapped[int | None]
    adapter_key: Mapped[int] = mapped_column(Computed("coalesce(adapter_id, 0)", persisted=True))
    model: Mapped[str]
    state: Mapped[str] = mapped_column(server_default="queued")
    priority: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    deadline: Mapped[datetime | None]
    batch_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("batches.id"))
    line_no: Mapped[int | None]
    custom_id: Mapped[str | None]
    turn: Mapped[int | None] = mapped_column(BigInteger)
    sent_to: Mapped[str | None]
    fence: Mapped[int] = mapped_column(server_default="0")
    crashes: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    attempts: Mapped[int] = mapped_column(SmallInteger, server_default="0")
    worker: Mapped[uuid.UUID | None]
    rescued: Mapped[bool] = mapped_column(server_default=text("false"))
    """Its worker or engine died with it, and no other has claimed it since: it is picked before all that are not."""
    created_at: Mapped[Created]
    dispatched_at: Mapped[datetime | None]
    claimed_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    error_code: Mapped[str | None]
    error_message: Mapped[str | None]
    finish_reason: Mapped[str | None]
    prompt_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    timing: Mapped[dict[str, Any] | None]
    charged: Mapped[int] = mapped_column(server_default="0")
    """Tokens that its tenant's service counter was charged at the pick."""
    waiting_reason: Mapped[str | None]
    """Why its worker had it wait, when last written; the planner's words, never a tenant's."""
    admit_reason: Mapped[str | None]
    notify: Mapped[bool] = mapped_column(server_default=text("false"))
    webhook_url: Mapped[str | None]
    parent_id: Mapped[uuid.UUID | None] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"))
    """The job of whose document this is a part; its tenant does not see it."""
    part_no: Mapped[int | None]
    waits_for_parts: Mapped[bool] = mapped_column(server_default=text("false"))
    """Queued, but not to be picked: its parts are being worked on."""
    overflow: Mapped[dict[str, Any] | None]
    """What was done to a document that was too long."""


class JobInput(Base):
    """What to run. `day` is the job's day (UTC); no foreign key, so that a day's table can be dropped."""

    __tablename__ = "job_inputs"
    __table_args__ = ({"postgresql_partition_by": "RANGE (day)"},)

    day: Mapped[date] = mapped_column(primary_key=True)
    job_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[str]
    body: Mapped[dict[str, Any]]


class JobOutput(Base):
    """What came out. Same key as the input: at most one output a job, by the database."""

    __tablename__ = "job_outputs"
    __table_args__ = ({"postgresql_partition_by": "RANGE (day)"},)

    day: Mapped[date] = mapped_column(primary_key=True)
    job_id: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[str]
    text: Mapped[str]
