"""`lorry keys`: make, list and revoke API keys. A key is printed once, alone on stdout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from api.cli import output
from api.cli.connection import registry_session
from registry import keys, tenants

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Make, list and revoke API keys.")


@app.command("create")
def create(
    tenant: Annotated[str, typer.Argument(help="The tenant's id.")],
    name: Annotated[str, typer.Option(help="What the key is for.")] = "default",
    expires_days: Annotated[int | None, typer.Option(min=1, max=3650, help="Days until it expires.")] = None,
) -> None:
    """Make a key: KEY=$(lorry keys create acme)."""
    expires_at = datetime.now(UTC) + timedelta(days=expires_days) if expires_days else None
    with registry_session() as session:
        row, secret = keys.create(session, tenant, name, expires_at)
    typer.echo(secret)
    output.hint(f"Shown this once. Send it as `Authorization: Bearer ...`; `lorry keys revoke {row.prefix}` ends it.")


@app.command("list")
def list_(tenant: Annotated[str, typer.Argument(help="The tenant's id.")], as_json: output.AsJson = False) -> None:
    """List a tenant's keys by their prefixes."""
    with registry_session() as session:
        tenants.get(session, tenant)
        rows = [
            {
                "prefix": key.prefix,
                "name": key.name,
                "created_at": key.created_at,
                "expires_at": key.expires_at,
                "revoked_at": key.revoked_at,
                "last_used_at": key.last_used_at,
            }
            for key in keys.of_tenant(session, tenant)
        ]
    output.records(rows, as_json=as_json, empty=f"No keys yet: `lorry keys create {tenant}` makes one.")


@app.command("revoke")
def revoke(
    prefix: Annotated[str, typer.Argument(help="`lorry_` and the 8 characters after it.")],
) -> None:
    """Refuse a key from now on."""
    with registry_session() as session:
        row = keys.revoke(session, prefix)
    typer.echo(f"Revoked {row.prefix} of {row.tenant_id}.")
