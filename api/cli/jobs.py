"""`lorry jobs`: the operator's view of jobs. Ids, states, times and timings; never a tenant's text or custom id.

`show` is a tenant's command too: who has a key set asks the API for their own job, and gets what the API gives.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from sqlalchemy import select

from api.cli import output
from api.cli.client import tenant_api
from api.cli.connection import registry_session
from registry import explanations, ids, tenants
from registry.errors import NotFound
from registry.models import Job
from registry.settings import get_settings
from registry.states import State

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Look at jobs: states, times and timings, never texts."
)

_DETAILS = (
    "priority",
    "deadline",
    "turn",
    "fence",
    "attempts",
    "crashes",
    "worker",
    "dispatched_at",
    "claimed_at",
    "error_message",
    "finish_reason",
    "prompt_tokens",
    "output_tokens",
)


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    status: Annotated[State | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest.")] = 50,
    as_json: output.AsJson = False,
) -> None:
    """List jobs, newest first."""
    query = select(Job).order_by(Job.seq.desc()).limit(limit)
    if tenant is not None:
        query = query.where(Job.tenant_id == tenant)
    if status is not None:
        query = query.where(Job.state == status)
    with registry_session() as session:
        if tenant is not None:
            tenants.get(session, tenant)
        rows = [_summary(job) for job in session.scalars(query)]
    output.records(rows, as_json=as_json, empty="No such jobs.")


@app.command("show")
def show(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="job_... as the API and Flower show it.")],
    as_json: output.AsJson = False,
) -> None:
    """Show one job with its timing. With LORRY_API_KEY set it is your own job, over HTTP, with its output; without, the
    operator's view."""
    if get_settings().api_key is not None:
        with tenant_api() as api:
            output.record(api.get(f"jobs/{job_id}"), as_json=as_json)
        return
    with registry_session() as session:
        job = session.get(Job, ids.from_wire("job", job_id))
    if job is None:
        raise NotFound("No such job: check the id.")
    details = {name: getattr(job, name) for name in _DETAILS}
    output.record(_summary(job) | details | {"timing": job.timing}, as_json=as_json)


@app.command("explain")
def explain(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="job_... as the API and Flower show it.")],
    as_json: output.AsJson = False,
) -> None:
    """Say why a job waits, or why it was admitted when it was."""
    with registry_session() as session:
        job = session.get(Job, ids.from_wire("job", job_id))
        if job is None:
            raise NotFound("No such job: check the id.")
        waits = explanations.waiting_for(
            job.state,
            job.started_at,
            job.waiting_reason,
            job.crashes,
            in_parts=job.waits_for_parts,
            rescued=job.rescued,
        )
        workers = explanations.at_deployment(session, job.deployment) if waits else None
    output.record(
        {
            "id": ids.to_wire("job", job.id),
            "state": job.state,
            "waiting_for": waits,
            "workers": workers,
            "last_waited_for": None if waits else job.waiting_reason,
            "admitted_because": job.admit_reason,
            "turn": job.turn,
            "charged_tokens": job.charged,
        },
        as_json=as_json,
    )


def _summary(job: Job) -> dict[str, Any]:
    return {
        "id": ids.to_wire("job", job.id),
        "tenant": job.tenant_id,
        "state": job.state,
        "model": job.model,
        "deployment": job.deployment,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "total_ms": (job.timing or {}).get("total_ms"),
        "error_code": job.error_code,
    }
