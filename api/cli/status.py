"""`lorry status`: servers, workers, backlogs and the processes of `lorry up`, on one page."""

from __future__ import annotations

from typing import Any

import typer
from sqlalchemy import func, select

from api.cli import checks, output
from api.cli.checks import Finding
from api.cli.connection import registry_session
from api.cli.runstate import RunState
from registry import backlog, presence
from registry.settings import get_settings


def status(as_json: output.AsJson = False) -> None:
    """Show servers, workers, backlogs and processes. Exits with 1 when a server is away or the schema is old."""
    settings = get_settings()
    found = checks.servers(settings)
    well = all(finding.ok for finding in found)
    deployments, workers = _registry() if _readable(found) else ([], [])
    stack = RunState(settings.data_dir).running()
    if as_json:
        servers = {finding.name: {"ok": finding.ok, "detail": finding.detail} for finding in found}
        output.print_json({"servers": servers, "deployments": deployments, "workers": workers, "stack": stack or None})
    else:
        _print(found, deployments, workers, stack)
    if not well:
        raise typer.Exit(1)


def _readable(found: list[Finding]) -> bool:
    return all(finding.ok for finding in found if finding.name in ("database", "schema"))


def _registry() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A row a deployment and a row a living worker."""
    with registry_session() as session:
        now = session.scalar(select(func.now()))
        lengths = backlog.lengths(session)
        alive = presence.all_workers(session)
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
            "residency": row.residency,
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
    return deployments, workers


def _print(
    found: list[Finding], deployments: list[dict[str, Any]], workers: list[dict[str, Any]], stack: dict[str, Any]
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
        ("Processes of `lorry up`", processes, "no stack is running on this data directory"),
    ):
        typer.echo(f"\n{title}{'' if rows else f': {nothing}'}")
        if rows:
            output.print_table(rows)
