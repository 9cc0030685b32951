"""What an operator asks of a running installation: pause, resume, drain, verify the store, go on after a restore."""

from __future__ import annotations

from typing import Annotated

import typer
from sqlalchemy import select

from api.cli import output
from api.cli.connection import registry_session
from registry import operations
from registry.models import Adapter
from registry.operations import Scope
from registry.settings import get_settings
from registry.store import Store

Deployment = Annotated[str | None, typer.Option(help="A deployment.")]
Tenant = Annotated[str | None, typer.Option(help="A tenant.")]
AdapterOf = Annotated[
    str | None, typer.Option("--adapter", metavar="TENANT/NAME[@VERSION]", help="An adapter, or one version of it.")
]


def pause(deployment: Deployment = None, tenant: Tenant = None, adapter: AdapterOf = None) -> None:
    """Pick no jobs of it any more. What workers have claimed goes on; submitting goes on."""
    scope = _scope(deployment, tenant, adapter)
    with registry_session() as session:
        back = operations.pause(session, scope)
    typer.echo(f"Paused {_words(scope)}. {back} jobs that no worker had claimed wait in the backlog again.")


def resume(deployment: Deployment = None, tenant: Tenant = None, adapter: AdapterOf = None) -> None:
    """Pick its jobs again."""
    scope = _scope(deployment, tenant, adapter)
    with registry_session() as session:
        operations.resume(session, scope)
    typer.echo(f"Resumed {_words(scope)}.")


def drain(worker: Annotated[str, typer.Argument(metavar="WORKER", help="Its name or id, see `lorry status`.")]) -> None:
    """Let a GPU worker hand back, finish what ends in time, and exit with 0. Its supervisor may start a new one."""
    with registry_session() as session:
        operations.drain(session, worker)
    typer.echo(f"{worker} was asked to drain.")


def verify_store(as_json: output.AsJson = False) -> None:
    """Compare every adapter's files with their digest. Exits with 1 when any are missing or changed."""
    store = Store(get_settings().store_dir)
    with registry_session() as session:
        rows = session.scalars(select(Adapter).order_by(Adapter.tenant_id, Adapter.name, Adapter.version)).all()
    faults = {place: store.fault(*place) for place in {(row.path, row.digest) for row in rows}}
    damaged = [
        {"tenant": row.tenant_id, "name": row.name, "version": row.version, "state": row.state, "fault": fault}
        for row in rows
        if (fault := faults[row.path, row.digest]) is not None
    ]
    output.records(damaged, as_json=as_json, empty=f"All files of {len(rows)} adapter versions are as registered.")
    if damaged:
        raise typer.Exit(1)


def after_restore() -> None:
    """Make a database that was restored from a backup fit to start on. Nothing else of Lorry may run meanwhile."""
    with registry_session() as session:
        found = operations.after_restore(session)
    typer.echo(
        f"{found.jobs} jobs that were under way wait again; {found.workers} workers of the backup count as ended; "
        f"{found.deliveries} webhook deliveries are held as undelivered, since they may have been sent since."
    )
    output.hint("Next: lorry verify-store")


def _scope(deployment: str | None, tenant: str | None, adapter: str | None) -> Scope:
    if sum(given is not None for given in (deployment, tenant, adapter)) != 1:
        raise typer.BadParameter("give exactly one of --deployment, --tenant and --adapter")
    if adapter is None:
        return Scope(deployment=deployment, tenant=tenant)
    owner, slash, model = adapter.partition("/")
    name, _, version = model.partition("@")
    if not (slash and name) or (version and not version.isdecimal()):
        raise typer.BadParameter("an adapter is TENANT/NAME or TENANT/NAME@3")
    return Scope(adapter=(owner, name, int(version) if version else None))


def _words(scope: Scope) -> str:
    if scope.adapter is not None:
        owner, name, version = scope.adapter
        return f"adapter {owner}/{name}" + (f"@{version}" if version else "")
    return f"deployment {scope.deployment}" if scope.deployment is not None else f"tenant {scope.tenant}"
