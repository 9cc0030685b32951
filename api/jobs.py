"""/v1/jobs: submit, read, list, cancel."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.orm import Session as OrmSession
from starlette.concurrency import run_in_threadpool

from api.body import documented, json_body
from api.deps import Caller, Session, Shared, reads_first
from api.idempotency import Idempotent, Once
from api.lists import Page
from api.services import Services
from api.waiting import preferred_wait_s
from registry import adapters, ids, jobs, quotas, transitions, wake
from registry.errors import InvalidField, JobEnded, NotFound
from registry.keys import Caller as KnownCaller
from registry.shapes import JobCreate, JobView, job_view
from registry.webhooks import endpoints, targets

router = APIRouter(tags=["jobs"])

POLL_AFTER_S: Final = 2

Status = Literal["queued", "running", "succeeded", "failed", "cancelled", "expired"]


@router.post("/jobs", status_code=202, openapi_extra=documented(JobCreate))
async def create_job(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    wanted: Annotated[JobCreate, Depends(json_body(JobCreate))],
    request: Request,
    response: Response,
) -> JobView:
    """Queue one document, chat or prompt for an adapter or a base model. Poll the `Location`, or send
    `Prefer: wait=N`: then the answer waits up to N seconds for the job, and is a 200 when it has ended."""
    view = await run_in_threadpool(submit_job, services, caller, once, wanted)
    view = await _waited(services, caller, view, request, response)
    response.headers["location"] = f"/v1/jobs/{view.id}"
    if view.finished_at is None:
        response.headers["retry-after"] = str(POLL_AFTER_S)
    else:
        response.status_code = 200
    return view


def submit_job(services: Services, caller: KnownCaller, once: Once, wanted: JobCreate) -> JobView:
    """Queue a job, once for its request. Raises what refuses it, and Replayed."""
    if wanted.webhook_url is not None:
        targets.check_at_intake(services.webhook_rules, wanted.webhook_url, param="webhook_url")
    with services.transaction(caller) as session:
        resolved = adapters.resolve(session, caller.tenant_id, wanted.model, wanted.base_model)
        prompt_format = services.prompt_format(session, resolved.base_model)
    # Counting the tokens of a long text takes up to a second: no connection waits for it.
    default, limit = services.settings.default_max_tokens, resolved.max_model_len
    may_be_long = wanted.on_overflow != "error"
    max_tokens = wanted.max_tokens
    if may_be_long:
        max_tokens = max_tokens or default
    elif max_tokens is None:
        max_tokens = prompt_format.choose_max_tokens(wanted.body, default, limit)
    else:
        prompt_format.check_fits(wanted.body, max_tokens, limit)
    with once.transaction() as session:
        if wanted.webhook_url is not None:
            endpoints.ensure_inline(session, services.secret_box, caller.tenant_id)
        job_id = jobs.submit(
            session,
            caller.tenant_id,
            wanted,
            resolved,
            max_tokens,
            may_lower=may_be_long and wanted.max_tokens is None,
        )
        view = job_view(jobs.get(session, caller.tenant_id, job_id))
        quotas.reserve_jobs(session, caller.tenant_id, 1, services.settings)
        once.keep(session, view, status=202, location=f"/v1/jobs/{view.id}")
    services.waker.wake(wake.QUEUED)
    return view


async def _waited(
    services: Services, caller: KnownCaller, view: JobView, request: Request, response: Response
) -> JobView:
    """The job as it is once it has ended, or once the client's preferred wait is over."""
    wait_s = preferred_wait_s(request, services.settings.max_wait_s)
    if not wait_s:
        return view
    response.headers["preference-applied"] = f"wait={wait_s}"
    job_id = ids.from_wire("job", view.id)
    if view.finished_at is None and await services.hub.ended(job_id, wait_s):
        return await run_in_threadpool(read_job, services, caller, job_id)
    return view


def read_job(services: Services, caller: KnownCaller, job_id: uuid.UUID) -> JobView:
    """The job as it is now. Raises NotFound."""
    with services.transaction(caller) as session:
        return job_view(jobs.get(session, caller.tenant_id, job_id))


@router.get("/jobs")
def list_jobs(
    session: Session,
    caller: Caller,
    after: Annotated[str | None, Query(description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    status: Annotated[Status | None, Query()] = None,
) -> Page[JobView]:
    """Your jobs, newest first."""
    try:
        cursor = ids.from_wire("job", after) if after is not None else None
        rows = jobs.page(session, caller.tenant_id, after=cursor, limit=limit, status=status)
    except NotFound:
        raise InvalidField("`after` is not the id of one of your jobs.", param="after") from None
    views = [job_view(row) for row in rows[:limit]]
    return Page.of(views, [view.id for view in views], has_more=len(rows) > limit)


def _read(session: OrmSession, caller: KnownCaller, path: Mapping[str, Any]) -> JobView:
    return job_view(jobs.get(session, caller.tenant_id, ids.from_wire("job", path["job_id"])))


@router.get("/jobs/{job_id}")
@reads_first(_read)
async def get_job(services: Shared, caller: Caller, job_id: str, request: Request, response: Response) -> JobView:
    """One job: its status, then its output, usage and timing. `Prefer: wait=N` waits up to N seconds for its end."""
    return await _waited(services, caller, request.state.read, request, response)


@router.post("/jobs/{job_id}/cancel")
def cancel_job(services: Shared, caller: Caller, once: Idempotent, job_id: str) -> JobView:
    """Stop a job that has not ended; asking again changes nothing. The engine's work for it is freed."""
    wanted = ids.from_wire("job", job_id)
    with once.transaction() as session:
        transitions.cancel(session, caller.tenant_id, wanted)
        view = job_view(jobs.get(session, caller.tenant_id, wanted))
        if view.status != "cancelled":
            raise JobEnded(f"The job has {view.status} already; it cannot be cancelled any more.")
        once.keep(session, view)
    services.waker.wake(wake.CANCELLED)
    return view
