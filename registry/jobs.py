"""Submitting and reading jobs."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import BindParameter, Row, Select, and_, bindparam, insert, select, text
from sqlalchemy.orm import Session

from registry.adapters import Resolved
from registry.errors import NotFound
from registry.ids import new_id
from registry.models import Adapter, Job, JobInput, JobOutput
from registry.shapes import JobCreate
from registry.states import OPEN, State
from registry.webhooks import endpoints

_DAY = Job.created_at.op("AT TIME ZONE")("UTC")
# `now()` is the transaction's own moment, so that this is the day of a job that it makes.
_TODAY = text("(now() AT TIME ZONE 'UTC')::date")


def submit(
    session: Session,
    tenant_id: str,
    request: JobCreate,
    resolved: Resolved,
    max_tokens: int,
    *,
    may_lower: bool = False,
) -> uuid.UUID:
    """Store a checked job; it exists once the caller's transaction commits."""
    adapter = resolved.adapter
    job_id = new_id()
    body = input_body(request, max_tokens, may_lower=may_lower)
    session.execute(insert(JobInput).values(day=_TODAY, job_id=job_id, tenant_id=tenant_id, body=body))
    # The job last: it locks its tenant's counter until the commit.
    session.add(
        Job(
            id=job_id,
            tenant_id=tenant_id,
            deployment=resolved.deployment,
            adapter_id=adapter.adapter_id if adapter else None,
            model=request.model,
            custom_id=request.custom_id,
            notify=True if request.webhook_url else endpoints.hears_of_jobs(tenant_id),
            webhook_url=request.webhook_url,
        )
    )
    session.flush()
    return job_id


def input_body(request: JobCreate, max_tokens: int, *, may_lower: bool = False) -> dict[str, Any]:
    """What the worker needs to run the job, and the tenant's own metadata. `may_lower`: `max_tokens` is a default that
    nobody has held against the prompt yet; the worker lowers it to what the prompt leaves of the context."""
    sampling: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": request.stops,
        "seed": request.seed,
    }
    if may_lower:
        sampling["may_lower"] = True
    if request.response_format is not None and (schema := request.response_format.schema_text) is not None:
        sampling["json_schema"] = schema
    body = {**request.body, "sampling": sampling, "metadata": request.metadata}
    if request.on_overflow != "error":
        body["on_overflow"] = request.on_overflow
    return body


def select_views(tenant_id: str | BindParameter[str]) -> Select[*tuple[Any, ...]]:
    """The columns that `shapes.job_view` reads, of one tenant's jobs."""
    day = _DAY.cast(JobInput.day.type)
    # Texts by a look-up a row: as joins, a planner without fresh statistics reads whole days for a page of jobs.
    metadata = select(JobInput.body["metadata"]).where(JobInput.day == day, JobInput.job_id == Job.id).scalar_subquery()
    output = select(JobOutput.text).where(JobOutput.day == day, JobOutput.job_id == Job.id).scalar_subquery()
    return (
        select(
            Job.id,
            Job.seq,
            Job.state,
            Job.model,
            Job.custom_id,
            Job.created_at,
            Job.started_at,
            Job.finished_at,
            Job.prompt_tokens,
            Job.output_tokens,
            Job.error_code,
            Job.error_message,
            Job.finish_reason,
            Job.timing,
            Job.waiting_reason,
            Job.crashes,
            Job.rescued,
            Job.overflow,
            Job.waits_for_parts,
            Adapter.version.label("adapter_version"),
            metadata.label("metadata"),
            output.label("text"),
        )
        .outerjoin(Adapter, and_(Adapter.tenant_id == Job.tenant_id, Adapter.adapter_id == Job.adapter_id))
        .where(Job.tenant_id == tenant_id, Job.parent_id.is_(None))
    )


_ONE = select_views(bindparam("tenant")).where(Job.id == bindparam("job"))
"""Built once: this is what clients poll."""


def get(session: Session, tenant_id: str, job_id: uuid.UUID) -> Row[Any]:
    """One job's view row. Raises NotFound, the same for missing and foreign."""
    row = session.execute(_ONE, {"tenant": tenant_id, "job": job_id}).one_or_none()
    if row is None:
        raise NotFound("No such job: check the id.")
    return row


def page(
    session: Session, tenant_id: str, *, after: uuid.UUID | None, limit: int, status: str | None
) -> Sequence[Row[Any]]:
    """View rows, newest first, at most `limit` + 1: the extra one says that more follow.

    Raises NotFound for an `after` that is not the tenant's.
    """
    query = select_views(tenant_id).order_by(Job.seq.desc()).limit(limit + 1)
    if after is not None:
        query = query.where(Job.seq < _seq_of(session, tenant_id, after))
    if status == "running":
        query = query.where(Job.state == State.RUNNING, Job.started_at.is_not(None))
    elif status == "queued":
        query = query.where(Job.state.in_(OPEN), Job.started_at.is_(None))
    elif status is not None:
        query = query.where(Job.state == status)
    return session.execute(query).all()


def _seq_of(session: Session, tenant_id: str, job_id: uuid.UUID) -> int:
    seq = session.scalar(select(Job.seq).where(Job.tenant_id == tenant_id, Job.id == job_id))
    if seq is None:
        raise NotFound("No such job: check `after`.", param="after")
    return seq
