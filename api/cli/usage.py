"""`lorry usage`: what a tenant has used in a month, for the operator's bill."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer

from api.cli import output
from api.cli.connection import registry_session
from registry import tenants
from registry import usage as used


def usage(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id.")],
    month: Annotated[str | None, typer.Option(help="YYYY-MM; this month (UTC) by default.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: output.AsJson = False,
) -> None:
    """Show jobs, tokens, swap and engine time by day and adapter version."""
    first, last = used.days_of(month or f"{datetime.now(UTC):%Y-%m}")
    with registry_session() as session:
        tenants.get(session, tenant)
        rows = used.between(session, tenant, first, last)
    if as_csv:
        typer.echo(used.as_csv(rows).replace("\r\n", "\n"), nl=False)
        return
    output.records([asdict(row) | {"day": row.day.isoformat()} for row in rows], as_json=as_json, empty="Nothing used.")
