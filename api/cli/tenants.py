"""`lorry tenants`: make and list tenants, and bound what each may use."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli import output
from api.cli.connection import registry_session
from registry import quotas, tenants
from registry.settings import get_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make and list tenants, and set their limits.")


@app.command("create")
def create(
    tenant_id: Annotated[str, typer.Argument(metavar="ID", help="A slug: a-z, 0-9, '.', '_', '-'.")],
    name: Annotated[str | None, typer.Option(help="A name for people; the id by default.")] = None,
    weight: Annotated[float, typer.Option(help="Share of service when everybody waits.")] = 1.0,
) -> None:
    """Make a tenant."""
    with registry_session() as session:
        made = tenants.create(session, tenant_id, name or tenant_id, weight)
    typer.echo(f"Made tenant {made.id}.")
    output.hint(f"Next: lorry keys create {made.id}")


@app.command("list")
def list_(as_json: output.AsJson = False) -> None:
    """List the tenants."""
    with registry_session() as session:
        rows = [
            {"id": t.id, "name": t.name, "weight": t.weight, "created_at": t.created_at}
            for t in tenants.all_tenants(session)
        ]
    output.records(rows, as_json=as_json, empty="No tenants yet: `lorry tenants create ID` makes one.")


@app.command("limits")
def limits(
    tenant_id: Annotated[str, typer.Argument(metavar="ID", help="The tenant's id.")],
    queued_jobs: Annotated[int | None, typer.Option(min=0, help="Jobs waiting or running at a time.")] = None,
    stored_bytes: Annotated[int | None, typer.Option(min=0, help="Bytes of files and adapters kept.")] = None,
    posts_per_minute: Annotated[int | None, typer.Option(min=1, help="POST requests within a minute.")] = None,
    tokens_per_day: Annotated[int | None, typer.Option(min=0, help="Tokens on a day (UTC).")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="First go back to the installation's defaults.")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Show a tenant's limits and what is used of them; with options, set some first."""
    given = {
        "queued_jobs": queued_jobs,
        "stored_bytes": stored_bytes,
        "posts_per_minute": posts_per_minute,
        "tokens_per_day": tokens_per_day,
    }
    with registry_session() as session:
        tenants.get(session, tenant_id)
        if reset:
            quotas.set_limits(session, tenant_id, **dict.fromkeys(given))
        quotas.set_limits(session, tenant_id, **{name: value for name, value in given.items() if value is not None})
        held = quotas.limits_of(session, tenant_id, get_settings())
        used = quotas.used(session, tenant_id)._mapping
    rows = [{"limit": name, "value": getattr(held, name), "used": used.get(name)} for name in given]
    output.records(rows, as_json=as_json, empty="")
