"""POST /v1/batches: of an uploaded file, in OpenAI's shape, or of the lines in the request itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from api.batch_body import REQUEST, receive_batch
from api.deps import Caller, Shared
from api.idempotency import Idempotent
from registry import quotas, wake
from registry.batches import views
from registry.batches.create import Submission
from registry.batches.dry_run import DryRun, dry_run
from registry.batches.views import BatchView
from registry.webhooks import endpoints

router = APIRouter(tags=["batches"])


@router.post("/batches", openapi_extra=REQUEST)
def create_batch(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    submission: Annotated[Submission, Depends(receive_batch, scope="function")],
) -> BatchView | DryRun:
    """Make a batch. Every line is checked before the answer: the batch is `in_progress` whole, or `failed` with a list
    of what is wrong, and then nothing of it runs. `on_bad_line: "skip"` runs it without its bad lines;
    `dry_run: true` only tells what would happen."""
    if submission.options.dry_run:
        return dry_run(services.database, submission, services.settings)
    with once.transaction() as session:
        if submission.options.webhook_url is not None:
            endpoints.ensure_inline(session, services.secret_box, caller.tenant_id)
        batch_id = submission.store(session)
        view = views.get(session, caller.tenant_id, batch_id)
        if view.status == "in_progress":
            quotas.reserve_jobs(session, caller.tenant_id, submission.spool.lines, services.settings)
        once.keep(session, view)
    services.waker.wake(wake.QUEUED)
    return view
