"""Batches, the files they come from and go to, and the lines that were refused at submission."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created, PrimaryUuid

BATCH_STATES = (
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
)
"""OpenAI's eight. A batch is validated inside the request that makes it, so `validating` is seen by nobody else."""
BATCH_ENDS = ("failed", "completed", "expired", "cancelled")
BATCH_ARROWS = {
    "validating": frozenset({"failed", "in_progress", "cancelling"}),
    "in_progress": frozenset({"finalizing", "expired", "cancelling"}),
    "finalizing": frozenset({"completed"}),
    "cancelling": frozenset({"cancelled"}),
    **{end: frozenset[str]() for end in BATCH_ENDS},
}
"""Mirrored by a trigger and by docs/states.md."""
_OPEN = text("status IN ('in_progress', 'finalizing', 'cancelling')")


class File(Base):
    """An uploaded input (`path` on disk), or a view of a batch's rows (`batch_id`, purpose `batch_output`)."""

    __tablename__ = "files"
    __table_args__ = (
        CheckConstraint("(path IS NOT NULL) = (batch_id IS NULL)", name="disk_or_rows"),
        CheckConstraint("content IN ('input', 'output', 'error')", name="content_known"),
        CheckConstraint("bytes >= 0", name="bytes_positive"),
        Index("ix_files_tenant", "tenant_id", "created_at", "id"),
        Index("ix_files_expires", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
    )

    id: Mapped[PrimaryUuid]
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    purpose: Mapped[str]
    content: Mapped[str] = mapped_column(server_default="input")
    filename: Mapped[str]
    bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str | None]
    path: Mapped[str | None]
    batch_id: Mapped[uuid.UUID | None]
    created_at: Mapped[Created]
    expires_at: Mapped[datetime | None]


class Batch(Base):
    """Many jobs submitted together. Counts are folded from tallies by the dispatcher, the only writer of its state."""

    __tablename__ = "batches"
    __table_args__ = (
        CheckConstraint(f"status IN ({', '.join(repr(s) for s in BATCH_STATES)})", name="status_known"),
        CheckConstraint("succeeded + failed + cancelled + expired <= total", name="counts_add_up"),
        CheckConstraint(
            " AND ".join(f"({status}_at IS NOT NULL) = (status = '{status}')" for status in BATCH_ENDS), name="one_end"
        ),
        CheckConstraint(
            "status NOT IN ('finalizing', 'completed', 'expired', 'cancelled') "
            "OR succeeded + failed + cancelled + expired = total",
            name="all_counted_at_the_end",
        ),
        CheckConstraint("on_bad_line IN ('fail', 'skip')", name="on_bad_line"),
        CheckConstraint("source IN ('file', 'ndjson', 'rerun')", name="source_known"),
        Index("ix_batches_tenant", "tenant_id", "created_at", "id"),
        Index(
            "ix_batches_open", "status", postgresql_where=text("status IN ('in_progress', 'finalizing', 'cancelling')")
        ),
    )

    id: Mapped[PrimaryUuid]
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id"))
    source: Mapped[str]
    endpoint: Mapped[str]
    status: Mapped[str]
    completion_window: Mapped[str]
    on_bad_line: Mapped[str] = mapped_column(server_default="fail")
    input_file_id: Mapped[uuid.UUID | None]
    output_file_id: Mapped[uuid.UUID | None]
    error_file_id: Mapped[uuid.UUID | None]
    output_expires_after_s: Mapped[int | None]
    rerun_of: Mapped[uuid.UUID | None]
    model: Mapped[str | None]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", server_default=text("'{}'::jsonb"))
    errors: Mapped[list[Any] | None]
    error_total: Mapped[int] = mapped_column(server_default="0")
    total: Mapped[int] = mapped_column(server_default="0")
    succeeded: Mapped[int] = mapped_column(server_default="0")
    failed: Mapped[int] = mapped_column(server_default="0")
    cancelled: Mapped[int] = mapped_column(server_default="0")
    expired: Mapped[int] = mapped_column(server_default="0")
    input_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    output_tokens: Mapped[int] = mapped_column(BigInteger, server_default="0")
    pace: Mapped[float] = mapped_column(server_default="0")
    pace_at: Mapped[datetime | None]
    pace_since: Mapped[datetime | None]
    created_at: Mapped[Created]
    in_progress_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    finalizing_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    failed_at: Mapped[datetime | None]
    expired_at: Mapped[datetime | None]
    cancelling_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]
    webhook_url: Mapped[str | None]


class BadLine(Base):
    """A line that was refused while the others of its batch run (`on_bad_line: skip`). Its text is not kept."""

    __tablename__ = "batch_bad_lines"

    batch_id: Mapped[uuid.UUID] = mapped_column(ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True)
    line_no: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant_id: Mapped[str]
    custom_id: Mapped[str | None]
    code: Mapped[str]
    message: Mapped[str]
    param: Mapped[str | None]
