"""/v1/batches beside their making: list, read, results, cancel, run again, delete; and deleting a job."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from api.deps import Caller, Session, Shared
from api.idempotency import Idempotent
from api.lists import Page
from registry import ids, quotas, wake
from registry.batches import ends, purge, rerun, results, views
from registry.batches.results import Order, Place
from registry.batches.views import BatchView
from registry.errors import BatchEnded, InvalidField, NotFound

router = APIRouter(tags=["batches"])

_NDJSON: Final = "application/x-ndjson"
_LINES: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {_NDJSON: {"schema": {"type": "string"}}}}}


class BatchDeleted(BaseModel):
    """What is left of a deleted batch."""

    id: str
    object: Literal["batch"] = "batch"
    deleted: Literal[True] = True


class JobDeleted(BaseModel):
    """What is left of a deleted job."""

    id: str
    object: Literal["job"] = "job"
    deleted: Literal[True] = True


@router.get("/batches")
def list_batches(
    session: Session,
    caller: Caller,
    after: Annotated[str | None, Query(description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Page[BatchView]:
    """Your batches, newest first."""
    try:
        cursor = ids.from_wire("batch", after) if after is not None else None
        found = views.page(session, caller.tenant_id, after=cursor, limit=limit)
    except NotFound:
        raise InvalidField("`after` is not the id of one of your batches.", param="after") from None
    shown = list(found[:limit])
    return Page.of(shown, [view.id for view in shown], has_more=len(found) > limit)


@router.get("/batches/{batch_id}")
def get_batch(session: Session, caller: Caller, batch_id: str) -> BatchView:
    """One batch: status, counts, and where its files are once it has ended."""
    return views.get(session, caller.tenant_id, ids.from_wire("batch", batch_id))


@router.post("/batches/{batch_id}/cancel")
def cancel_batch(services: Shared, caller: Caller, once: Idempotent, batch_id: str) -> BatchView:
    """Stop a batch: lines that wait never start, those in an engine are aborted, finished ones stay. Asking again while
    it is being cancelled changes nothing."""
    wanted = ids.from_wire("batch", batch_id)
    with once.transaction() as session:
        ends.request_cancel(session, caller.tenant_id, wanted)
        view = views.get(session, caller.tenant_id, wanted)
        if view.status != "cancelling":
            raise BatchEnded(f"The batch is {view.status}: all of its lines have ended, there is nothing to cancel.")
        once.keep(session, view)
    services.waker.wake(wake.QUEUED)
    return view


@router.post("/batches/{batch_id}/rerun")
def rerun_batch(services: Shared, caller: Caller, once: Idempotent, batch_id: str) -> BatchView:
    """Run the failed, expired and cancelled lines of an ended batch again, as a new batch with the same line numbers
    and custom ids. The new batch's `lorry.rerun_of` names the old one."""
    wanted = ids.from_wire("batch", batch_id)
    with once.transaction() as session:
        view = views.get(session, caller.tenant_id, rerun.rerun(session, caller.tenant_id, wanted))
        quotas.reserve_jobs(session, caller.tenant_id, view.request_counts.total, services.settings)
        once.keep(session, view)
    services.waker.wake(wake.QUEUED)
    return view


@router.get("/batches/{batch_id}/results", response_class=StreamingResponse, responses=_LINES)
def get_batch_results(
    services: Shared,
    caller: Caller,
    batch_id: str,
    order: Annotated[Order, Query(description="`input` stops at the first line that has not ended.")] = "input",
    after: Annotated[str | None, Query(description="The `cursor` of the last line you have.", max_length=40)] = None,
    limit: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
) -> StreamingResponse:
    """What has ended so far, one JSON object a line: the job as `GET /v1/jobs/{id}` shows it, with its `line` number
    and a `cursor`. To go on, in a moment or after a cut, ask for what comes `after` the last cursor. The header
    `lorry-batch-status` has the batch's status before the first line was read: once that is terminal, an answer without
    `limit` has every line."""
    wanted = ids.from_wire("batch", batch_id)
    place = Place.of(order, after)
    with services.transaction(caller) as session:
        status = views.get(session, caller.tenant_id, wanted).status
    lines = results.stream(services.database, caller.tenant_id, wanted, place, limit)
    return StreamingResponse(lines, media_type=_NDJSON, headers={"lorry-batch-status": status})


@router.delete("/batches/{batch_id}")
def delete_batch(services: Shared, caller: Caller, batch_id: str) -> BatchDeleted:
    """Delete an ended batch at once, with all texts of its lines and its output and error file. Usage stays counted."""
    with services.transaction(caller) as session:
        purge.purge_batch(session, caller.tenant_id, ids.from_wire("batch", batch_id))
    return BatchDeleted(id=batch_id)


@router.delete("/jobs/{job_id}")
def delete_job(services: Shared, caller: Caller, job_id: str) -> JobDeleted:
    """Delete an ended job with its texts, at once. A line of a batch loses its texts; its place in the batch stays."""
    with services.transaction(caller) as session:
        purge.purge_job(session, caller.tenant_id, ids.from_wire("job", job_id))
    return JobDeleted(id=job_id)
