"""`lorry status`: servers, workers, backlogs and the processes of `lorry up`, on one page."""

from __future__ import annotations

from typing import Any

import typer
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.cli import checks, output
from api.cli.checks import Finding
from api.cli.connection import registry_session
from api.cli.runstate import RunState
from registry import backlog, metrics, operations, presence
from registry.models import Adapter
from registry.settings import get_settings


def status(as_json: output.AsJson = False) -> None:
    """Show servers, workers, backlogs and processes. Exits with 1 when a server is away or the schema is old."""
    settings = get_settings()
    found = checks.servers(settings)
    well = all(finding.ok for finding in found)
    deployments, workers, paused = _registry() if _readable(found) else (None, None, None)
    stack = RunState(settings.data_dir).running()
    if as_json:
        servers = {finding.name: {"ok": finding.ok, "detail": finding.detail} for finding in found}
        registry = {"deployments": deployments, "workers": workers, "paused": paused}
        shown_at = metrics.addresses(settings)
        output.print_json({"servers": servers, **registry, "stack": stack or None, "metrics": shown_at})
    else:
        _print(found, deployments, workers, paused, stack)
        shown = [{"process": name, "address": at} for name, at in metrics.addresses(settings).items()]
        if shown:
            typer.echo("\nMetrics")
            output.print_table(shown)
    if not well:
        raise typer.Exit(1)


def _readable(found: list[Finding]) -> bool:
    return all(finding.ok for finding in found if finding.name in ("database", "schema"))


def _registry() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """A row a deployment, a row a living worker, a row for each thing that is paused."""
    with registry_session() as session:
        now = session.scalar(select(func.now()))
        lengths = backlog.lengths(session)
        alive = presence.all_workers(session)
        paused = list(operations.paused(session))
        named = _adapter_names(session, {slot for row in alive for slot in row.residency.get("slots", ())})
    assert now is not None
    workers = [
        {
            "worker": row.name,
            "deployment": row.deployment,
            "state": row.state,
            "held": row.held,
            "capacity": row.capacity,
            "live": row.live,
            "beat_age_s": round((now - row.beat_at).total_seconds(), 1),
            "slots": [named.get(slot, f"#{slot}") for slot in row.residency.get("slots", ())],
        }
        for row in alive
    ]
    deployments = [
        {
            "deployment": length.deployment,
            "queued": length.queued,
            "dispatched": length.dispatched,
            "running": length.running,
            "workers": sum(row.deployment == length.deployment for row in alive),
        }
        for length in lengths
    ]
    return deployments, workers, paused


def _adapter_names(session: Session, engine_ids: set[int]) -> dict[int, str]:
    """What people call the adapters that a worker knows by the engine's integer ids."""
    rows = session.scalars(select(Adapter).where(Adapter.adapter_id.in_(engine_ids)))
    return {row.adapter_id: f"{row.tenant_id}/{row.name}@{row.version}" for row in rows}


def _print(
    found: list[Finding],
    deployments: list[dict[str, Any]] | None,
    workers: list[dict[str, Any]] | None,
    paused: list[dict[str, Any]] | None,
    stack: dict[str, Any],
) -> None:
    for finding in found:
        word = "" if finding.ok else f"  NOT WELL. {finding.repair}"
        typer.echo(f"{finding.name:<9} {finding.detail}{word}")
    if stack:
        typer.echo(f"{'API':<9} {stack['api_url']}\n{'Flower':<9} {stack['flower_url']}")
    processes = [
        {"process": name, "state": entry["state"], "pid": entry["pid"], "restarts": entry["restarts"]}
        for name, entry in stack.get("processes", {}).items()
    ]
    for title, rows, nothing in (
        ("Backlog", deployments, "no deployments: `lorry bases add` makes one"),
        ("Workers", workers, "none alive"),
        ("Paused", paused or None, ""),
        ("Processes of `lorry up`", processes, "no stack is running on this data directory"),
    ):
        if rows is None:
            continue  # an unreadable registry is no empty one
        typer.echo(f"\n{title}{'' if rows else f': {nothing}'}")
        if rows:
            output.print_table(rows)
