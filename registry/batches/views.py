"""A batch as its tenant reads it: OpenAI's Batch object, and under `lorry` what that object has no place for."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import BaseModel
from sqlalchemy import Select, and_, func, select, tuple_
from sqlalchemy.orm import Session

from registry import ids
from registry.errors import NotFound
from registry.models import Batch, Job
from registry.tallies import PACE_S

_SLOWEST_JOBS_S = 0.001
"""Slower than that the pace says nothing about when the batch will end."""


class RequestCounts(BaseModel):
    """`failed` has every line of the error file: refused, failed, cancelled, expired. Equal to `total` at the end."""

    total: int
    completed: int
    failed: int


class BatchError(BaseModel):
    """Why a batch was refused: one of its lines, or (`line` null) the input as a whole."""

    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrors(BaseModel):
    """The first hundred."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class InputDetails(BaseModel):
    """There for OpenAI's clients; Lorry does not bill cached tokens apart."""

    cached_tokens: int = 0


class OutputDetails(BaseModel):
    """There for OpenAI's clients."""

    reasoning_tokens: int = 0


class BatchUsage(BaseModel):
    """Tokens of the lines that have ended."""

    input_tokens: int
    input_tokens_details: InputDetails = InputDetails()
    output_tokens: int
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int


class LineCounts(BaseModel):
    """Lines by status. `queued` and `running` follow the others by up to a second."""

    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int


class BatchExtras(BaseModel):
    """What Lorry adds. `rate_jobs_s` is measured on this batch over about the last minute, `eta_s` follows from it."""

    counts: LineCounts
    rate_jobs_s: float
    eta_s: float | None
    bad_lines: int
    on_bad_line: Literal["fail", "skip"]
    rerun_of: str | None


class BatchView(BaseModel):
    """OpenAI's Batch. All times are unix seconds."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None
    errors: BatchErrors | None
    input_file_id: str | None
    completion_window: str
    status: Literal[
        "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
    ]
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    usage: BatchUsage
    metadata: dict[str, str]
    lorry: BatchExtras


def get(session: Session, tenant_id: str, batch_id: uuid.UUID) -> BatchView:
    """One batch. Raises NotFound, the same for missing and foreign."""
    row = session.execute(_select(tenant_id).where(Batch.id == batch_id)).one_or_none()
    if row is None:
        raise NotFound("No such batch: check the id.")
    return batch_view(*row)


def page(session: Session, tenant_id: str, *, after: uuid.UUID | None, limit: int) -> Sequence[BatchView]:
    """Batches, newest first, at most `limit` + 1: the extra one says that more follow.

    Raises NotFound for an `after` that is not the tenant's.
    """
    query = _select(tenant_id).order_by(Batch.created_at.desc(), Batch.id.desc()).limit(limit + 1)
    if after is not None:
        last = session.scalar(select(Batch.created_at).where(Batch.tenant_id == tenant_id, Batch.id == after))
        if last is None:
            raise NotFound("No such batch: check `after`.", param="after")
        query = query.where(tuple_(Batch.created_at, Batch.id) < tuple_(last, after))
    return [batch_view(*row) for row in session.execute(query)]


def batch_view(batch: Batch, running: int, now: datetime) -> BatchView:
    """The view of a row; `running` is how many of its jobs the engines have."""
    times = {f"{name}_at": _seconds(getattr(batch, f"{name}_at")) for name in _MOMENTS}
    return BatchView(
        id=ids.to_wire("batch", batch.id),
        endpoint=batch.endpoint,
        model=batch.model,
        errors=BatchErrors(data=batch.errors) if batch.errors else None,
        input_file_id=_file(batch.input_file_id),
        completion_window=batch.completion_window,
        status=batch.status,
        output_file_id=_file(batch.output_file_id),
        error_file_id=_file(batch.error_file_id),
        created_at=int(batch.created_at.timestamp()),
        **times,
        request_counts=RequestCounts(
            total=batch.total, completed=batch.succeeded, failed=batch.failed + batch.cancelled + batch.expired
        ),
        usage=BatchUsage(
            input_tokens=batch.input_tokens,
            output_tokens=batch.output_tokens,
            total_tokens=batch.input_tokens + batch.output_tokens,
        ),
        metadata=batch.metadata_,
        lorry=_extras(batch, running, now),
    )


_MOMENTS = ("in_progress", "expires", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


def _select(tenant_id: str) -> Select[Batch, int, datetime]:
    running = (
        select(func.count())
        .select_from(Job)
        .where(and_(Job.state == "running", Job.started_at.is_not(None), Job.batch_id == Batch.id))
        .scalar_subquery()
    )
    return select(Batch, running, func.clock_timestamp()).where(Batch.tenant_id == tenant_id)


def _extras(batch: Batch, running: int, now: datetime) -> BatchExtras:
    left = batch.total - batch.succeeded - batch.failed - batch.cancelled - batch.expired
    busy = min(running, left)
    rate_jobs_s = _rate_jobs_s(batch, now) if left else 0.0
    return BatchExtras(
        counts=LineCounts(
            queued=left - busy,
            running=busy,
            succeeded=batch.succeeded,
            failed=batch.failed,
            cancelled=batch.cancelled,
            expired=batch.expired,
        ),
        rate_jobs_s=round(rate_jobs_s, 3),
        eta_s=round(left / rate_jobs_s, 1) if rate_jobs_s > _SLOWEST_JOBS_S else None,
        bad_lines=batch.error_total,
        on_bad_line=batch.on_bad_line,
        rerun_of=ids.to_wire("batch", batch.rerun_of) if batch.rerun_of else None,
    )


def _rate_jobs_s(batch: Batch, now: datetime) -> float:
    """The pace as it is now. An average that began `age` ago has seen only part of its weight: scale it up."""
    if batch.pace_at is None or batch.pace_since is None:
        return 0.0
    faded = math.exp(-max(0.0, (now - batch.pace_at).total_seconds()) / PACE_S)
    age_s = max(1.0, (now - batch.pace_since).total_seconds())
    return batch.pace * faded / (1 - math.exp(-age_s / PACE_S))


def _file(file_id: uuid.UUID | None) -> str | None:
    return ids.to_wire("file", file_id) if file_id else None


def _seconds(moment: datetime | None) -> int | None:
    return int(moment.timestamp()) if moment else None
