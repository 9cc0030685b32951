"""/v1/jobs: submit, read, list, cancel."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from api.body import documented, json_body
from api.deps import Caller, Session, Shared
from api.errors import RETRY_AFTER_S
from api.lists import Page
from registry import adapters, ids, jobs, transitions, wake
from registry.errors import InvalidField, JobEnded, NotFound
from registry.shapes import JobCreate, JobView, job_view

router = APIRouter(tags=["jobs"])

Status = Literal["queued", "running", "succeeded", "failed", "cancelled", "expired"]


@router.post("/jobs", status_code=202, openapi_extra=documented(JobCreate))
def create_job(
    services: Shared, caller: Caller, request: Annotated[JobCreate, Depends(json_body(JobCreate))], response: Response
) -> JobView:
    """Queue one document, chat or prompt for an adapter or a base model. Poll the `Location`."""
    with services.transaction(caller) as session:
        resolved = adapters.resolve(session, caller.tenant_id, request.model, request.base_model)
        prompt_format = services.prompt_format(session, resolved.base_model)
    # Counting the tokens of a long text takes up to a second: no connection waits for it.
    max_tokens = request.max_tokens
    if max_tokens is None:
        default = services.settings.default_max_tokens
        max_tokens = prompt_format.choose_max_tokens(request.body, default, resolved.max_model_len)
    else:
        prompt_format.check_fits(request.body, max_tokens, resolved.max_model_len)
    with services.transaction(caller) as session:
        job_id = jobs.submit(session, caller.tenant_id, request, resolved, max_tokens)
        view = job_view(jobs.get(session, caller.tenant_id, job_id))
    services.waker.wake(wake.QUEUED)
    response.headers["location"] = f"/v1/jobs/{view.id}"
    response.headers["retry-after"] = str(RETRY_AFTER_S)
    return view


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


@router.get("/jobs/{job_id}")
def get_job(session: Session, caller: Caller, job_id: str) -> JobView:
    """One job: its status, then its output, usage and timing."""
    return job_view(jobs.get(session, caller.tenant_id, ids.from_wire("job", job_id)))


@router.post("/jobs/{job_id}/cancel")
def cancel_job(services: Shared, caller: Caller, job_id: str) -> JobView:
    """Stop a job that has not ended; asking again changes nothing. The engine's work for it is freed."""
    wanted = ids.from_wire("job", job_id)
    with services.transaction(caller) as session:
        moved = transitions.cancel(session, caller.tenant_id, wanted)
        view = job_view(jobs.get(session, caller.tenant_id, wanted))
    if moved:
        services.waker.wake(wake.CANCELLED)
    elif view.status != "cancelled":
        raise JobEnded(f"The job has {view.status} already; it cannot be cancelled any more.")
    return view
