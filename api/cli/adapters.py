"""`lorry adapters`: check a folder, push it for a tenant, list, show, activate and retire versions."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli import adapter_check, output
from api.cli.connection import registry_session, system_database
from registry import adapter_intake, adapter_states, adapters, tenants
from registry.errors import Conflict, NotFound
from registry.models import Adapter
from registry.settings import get_settings
from registry.store import Store

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Check, push, list and activate adapters.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that PEFT's save_pretrained wrote.")]
TenantId = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's id.")]
Name = Annotated[str, typer.Argument(metavar="NAME")]
Version = Annotated[int, typer.Argument(metavar="VERSION", min=1)]
Reason = Annotated[str, typer.Option(help="Why; its tenant reads it.")]


@app.command("check")
def check(
    folder: Folder,
    base: Annotated[str | None, typer.Option(help="A registered base, whatever the adapter's config says.")] = None,
    base_path: Annotated[Path | None, typer.Option(help="A model folder: needs no database.")] = None,
    max_rank: Annotated[int | None, typer.Option(min=1, help="Rank ceiling; the base's own by default.")] = None,
    as_json: output.AsJson = False,
) -> None:
    """Say what is wrong with an adapter folder, and how to repair it. Exits with 1 if anything is."""
    if base is not None and base_path is not None:
        raise typer.BadParameter("give at most one of --base and --base-path")
    verdict = adapter_check.examine(folder, base, base_path, max_rank)
    adapter_check.show(folder, verdict, as_json=as_json)
    if verdict.problems:
        raise typer.Exit(1)


@app.command("push")
def push(
    folder: Folder,
    tenant: Annotated[str, typer.Option(help="Whose adapter it is.")],
    name: Annotated[str, typer.Option(help="The name the tenant uses in `model`.")],
    base: Annotated[
        str | None, typer.Option(help="State the base when the config names it otherwise; recorded.")
    ] = None,
    activate: Annotated[bool, typer.Option("--activate", help="Let the bare name mean this version.")] = False,
) -> None:
    """Check a folder, keep its two files and register them as a new version. A first version is active at once."""
    settings = get_settings()
    with system_database() as database:
        row = adapter_intake.intake(
            database,
            Store(settings.store_dir),
            tenant,
            name,
            folder,
            max_bytes=settings.max_adapter_bytes,
            base=base,
            stated_by=f"operator {getpass.getuser()}",
            activate=True if activate else None,
        )
    left = f"; left behind: {', '.join(row.facts['left_behind'])}" if row.facts["left_behind"] else ""
    active = "active" if row.is_active else "not active"
    typer.echo(
        f"{tenant}/{name}@{row.version} of {row.base_model}: rank {row.rank}, {row.size_bytes} bytes, {active}{left}"
    )
    if not row.is_active:
        output.hint(f"Next: lorry adapters activate {tenant} {name} {row.version}")


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None, as_json: output.AsJson = False
) -> None:
    """List adapter versions, newest first for each name."""
    with registry_session() as session:
        chosen = [tenants.get(session, tenant)] if tenant else tenants.all_tenants(session)
        rows = [_summary(row) for owner in chosen for row in adapters.of_tenant(session, owner.id)]
    output.records(rows, as_json=as_json, empty="No adapters yet: `lorry adapters push DIR` registers one.")


@app.command("show")
def show(
    tenant: TenantId,
    model: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="Without a version: the active one.")],
    as_json: output.AsJson = False,
) -> None:
    """Show one version: what it is, where its files are, what the engine calls it."""
    name, _, version = model.partition("@")
    if version and not version.isdecimal():
        raise typer.BadParameter("a version is a number: NAME@3")
    with registry_session() as session:
        tenants.get(session, tenant)
        mine = adapters.of_tenant(session, tenant, name)
    row = next((r for r in mine if (str(r.version) == version if version else r.is_active)), None)
    if row is None:
        raise NotFound(f"{tenant!r} has no adapter {model!r}; `lorry adapters list --tenant {tenant}` shows them.")
    details = {
        "digest": row.digest,
        "path": row.path,
        "engine_name": adapters.engine_name(tenant, row.name, row.version, row.digest),
        "engine_id": row.adapter_id,
        "base_stated_by": row.base_stated_by,
        **row.facts,
    }
    output.record(_summary(row) | details, as_json=as_json)


@app.command("activate")
def activate(
    tenant: TenantId,
    name: Name,
    version: Version,
) -> None:
    """Let the bare name mean this version. Rolling back is activating an older one."""
    with registry_session() as session:
        adapters.activate(session, tenant, name, version)
    typer.echo(f"{tenant}/{name} now means version {version}.")


@app.command("retire")
def retire(tenant: TenantId, name: Name, version: Version, reason: Reason = "retired by the operator") -> None:
    """Take a version out of service for good; its open jobs fail at once."""
    _set_aside(tenant, name, version, reason, quarantined=False)


@app.command("quarantine")
def quarantine(tenant: TenantId, name: Name, version: Version, reason: Reason = "quarantined by the operator") -> None:
    """Take a version out of service until it is released; its open jobs fail at once."""
    _set_aside(tenant, name, version, reason, quarantined=True)


@app.command("release")
def release(tenant: TenantId, name: Name, version: Version) -> None:
    """Put a retired or quarantined version into service again. It becomes active only by `activate`."""
    with registry_session() as session:
        adapter_states.release(session, tenant, name, version)
    typer.echo(f"{tenant}/{name}@{version} is in service again.")
    output.hint(f"Next: lorry adapters activate {tenant} {name} {version}")


def _set_aside(tenant: str, name: str, version: int, reason: str, *, quarantined: bool) -> None:
    change, word = (adapter_states.quarantine, "quarantined") if quarantined else (adapter_states.retire, "retired")
    with registry_session() as session:
        found = adapters.get(session, tenant, name, version)
        if not change(session, tenant, name, version, reason):
            raise Conflict(f"{name}@{version} is {found.state} already.")
    typer.echo(f"{tenant}/{name}@{version} is {word}; its open jobs fail.")


def _summary(row: Adapter) -> dict[str, Any]:
    return {
        "tenant": row.tenant_id,
        "name": row.name,
        "version": row.version,
        "active": row.is_active,
        "state": row.state,
        "state_reason": row.state_reason,
        "base": row.base_model,
        "rank": row.rank,
        "size_bytes": row.size_bytes,
        "created_at": row.created_at,
    }
