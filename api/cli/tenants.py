"""`lorry tenants`: make and list tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli import output
from api.cli.connection import registry_session
from registry import tenants

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make and list tenants.")


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
