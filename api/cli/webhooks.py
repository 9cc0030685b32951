"""`lorry webhooks`: where a tenant's events and results go, over HTTP. A secret is printed once, alone on stdout."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

from api.cli import output
from api.cli.client import tenant_api

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Your webhook endpoints: list, add, test, rotate, deliveries."
)

EndpointId = Annotated[str, typer.Argument(metavar="ID", help="we_... as `lorry webhooks list` shows it.")]


@app.command("list")
def list_(as_json: output.AsJson = False) -> None:
    """List your endpoints."""
    with tenant_api() as api:
        found = api.get("webhook_endpoints", limit=100)["data"]
    names = ("id", "name", "url", "event_types", "deliver", "status", "disabled_reason")
    rows = found if as_json else [{name: endpoint[name] for name in names} for endpoint in found]
    output.records(rows, as_json=as_json, empty="No endpoints yet: `lorry webhooks add URL` makes one.")


@app.command("add")
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to send.")],
    event: Annotated[list[str] | None, typer.Option(help="An event to hear of, as batch.completed; repeat it.")] = None,
    name: Annotated[str, typer.Option(help="What you call it.")] = "default",
    payload: Annotated[Literal["full", "thin"], typer.Option(help="With texts, or ids and links only.")] = "full",
    results: Annotated[bool, typer.Option("--results", help="Also every batch's finished lines, in chunks.")] = False,
) -> None:
    """Make an endpoint: SECRET=$(lorry webhooks add URL --event batch.completed)."""
    wanted = {"name": name, "url": url, "event_types": event or [], "payload": payload}
    with tenant_api() as api:
        made = api.post("webhook_endpoints", wanted | {"deliver": "results" if results else "events"})
    _give_secret(made)
    output.hint(f"Next: lorry webhooks test {made['id']}")


@app.command("test")
def send_sample(
    endpoint_id: EndpointId,
    event: Annotated[str, typer.Option(help="The event to send a sample of.")] = "batch.completed",
) -> None:
    """Send a sample, and say what the receiver answered. Exits with 1 unless that was 2xx."""
    with tenant_api() as api:
        found = api.post(f"webhook_endpoints/{endpoint_id}/test", {"event_type": event})
    status = found["status_code"]
    typer.echo(f"The receiver answered {status}.")
    if not 200 <= status < 300:
        raise typer.Exit(1)


@app.command("rotate")
def rotate(
    endpoint_id: EndpointId,
    keep_old: Annotated[bool, typer.Option("--keep-old", help="Sign with both for 24 hours.")] = False,
) -> None:
    """A new secret; the old one ends at once, or with --keep-old in 24 hours."""
    with tenant_api() as api:
        found = api.post(
            f"webhook_endpoints/{endpoint_id}/rotate_secret", {"keep_old_secret_active_for_24_hours": keep_old}
        )
    _give_secret(found)


@app.command("deliveries")
def deliveries(
    endpoint_id: EndpointId,
    status: Annotated[
        Literal["pending", "sending", "delivered", "exhausted"] | None, typer.Option(help="Only these.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="At most so many, the newest.")] = 20,
    as_json: output.AsJson = False,
) -> None:
    """What was sent, or is to be: newest first."""
    with tenant_api() as api:
        found = api.get(f"webhook_endpoints/{endpoint_id}/deliveries", status=status, limit=limit)["data"]
    names = ("id", "event_type", "subject_id", "chunk", "status", "attempts", "last_code", "last_error")
    rows = found if as_json else [{name: delivery[name] for name in names} for delivery in found]
    output.records(rows, as_json=as_json, empty="No deliveries.")


@app.command("redeliver")
def redeliver(
    endpoint_id: EndpointId,
    delivery_id: Annotated[str | None, typer.Argument(metavar="[DELIVERY]", help="evt_..., one delivery.")] = None,
    since: Annotated[datetime | None, typer.Option(help="Instead: all dead letters since then (UTC).")] = None,
    everything: Annotated[bool, typer.Option("--all", help="With --since: also what arrived.")] = False,
) -> None:
    """Send again: one delivery, or all dead letters since a moment."""
    if (delivery_id is None) == (since is None):
        raise typer.BadParameter("give one delivery's id, or --since a moment")
    with tenant_api() as api:
        if since is None:
            found = api.post(f"webhook_endpoints/{endpoint_id}/deliveries/{delivery_id}/redeliver")
            typer.echo(f"{found['id']} is sent again.")
            return
        begin_s = int(since.replace(tzinfo=since.tzinfo or UTC).timestamp())
        params = {"since": str(begin_s), "status": "all" if everything else "exhausted"}
        found = api.post(f"webhook_endpoints/{endpoint_id}/redeliver", params=params)
    typer.echo(f"{found['count']} deliveries are sent again.")


@app.command("remove")
def remove(endpoint_id: EndpointId) -> None:
    """Remove an endpoint with its deliveries, also those that wait."""
    with tenant_api() as api:
        api.delete(f"webhook_endpoints/{endpoint_id}")
    typer.echo(f"Removed {endpoint_id}.")


def _give_secret(endpoint: dict[str, Any]) -> None:
    typer.echo(endpoint["signing_secret"])
    output.hint(f"Shown this once: what {endpoint['id']} is signed with.")
