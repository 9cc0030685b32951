"""`lorry batches`: a tenant's own batches, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from api.cli import follow, output
from api.cli.client import tenant_api
from api.cli.downloads import check_target

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Your batches: list, show, cancel, results, rerun.")

BatchId = Annotated[str, typer.Argument(metavar="ID", help="batch_... as `lorry submit` printed it.")]


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, max=100, help="At most so many, the newest.")] = 20,
    as_json: output.AsJson = False,
) -> None:
    """List your batches, newest first."""
    with tenant_api() as api:
        found = api.get("batches", limit=limit)["data"]
    rows = found if as_json else [_summary(batch) for batch in found]
    output.records(rows, as_json=as_json, empty="No batches yet: `lorry submit` makes one.")


@app.command("show")
def show(batch_id: BatchId, as_json: output.AsJson = False) -> None:
    """Show one batch: status, counts, rate, time left."""
    with tenant_api() as api:
        found = api.get(f"batches/{batch_id}")
    if as_json:
        output.print_json(found)
        return
    errors = (found["errors"] or {"data": []})["data"]
    output.record(_summary(found) | {"expires_at": _moment(found["expires_at"]), **found["lorry"]}, as_json=False)
    for error in errors:
        output.hint(f"line {error['line'] or '-'}: {error['message']} [{error['code']}]")


@app.command("cancel")
def cancel(batch_id: BatchId) -> None:
    """Stop a batch. What has finished stays."""
    with tenant_api() as api:
        found = api.post(f"batches/{batch_id}/cancel")
    typer.echo(f"{found['id']} is {found['status']}.")


@app.command("results")
def results(
    batch_id: BatchId,
    out: Annotated[str, typer.Option(help="A .jsonl, .csv or .tsv file, or - .")] = "-",
    wait: Annotated[bool, typer.Option("--wait", help="Stay until the batch has ended.")] = False,
    retry_for: Annotated[float, typer.Option(min=0, help="Seconds to bear a server that does not answer.")] = 60.0,
) -> None:
    """Take what has ended, in input order. A download that was cut goes on where it was."""
    check_target(out, batch_id)
    with tenant_api(retry_for) as api:
        if wait:
            raise typer.Exit(follow.follow(api, batch_id, out))
        follow.take(api, batch_id, out)


@app.command("rerun")
def rerun(batch_id: BatchId) -> None:
    """Run again what failed, expired or was cancelled; prints the new batch's id."""
    with tenant_api() as api:
        found = api.post(f"batches/{batch_id}/rerun")
    typer.echo(found["id"])
    output.hint(f"{found['request_counts']['total']} lines. {follow.going_on(found['id'], None)}")


def _summary(batch: dict[str, Any]) -> dict[str, Any]:
    counts = batch["request_counts"]
    return {
        "id": batch["id"],
        "status": batch["status"],
        "model": batch["model"],
        "total": counts["total"],
        "completed": counts["completed"],
        "failed": counts["failed"],
        "created_at": _moment(batch["created_at"]),
    }


def _moment(seconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
