"""What `lorry adapters check` finds out and prints: every problem with its repair, or the facts of a good adapter.

With a model folder given it needs no database, so that tenants can run it where they train.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from api.cli import output
from api.cli.connection import registry_session
from registry import adapter_files, adapter_intake
from registry.adapter_files import AdapterFacts, Problem
from registry.errors import AdapterRejected
from registry.models.bases import RANK_CEILINGS
from registry.settings import get_settings


@dataclass(frozen=True, slots=True)
class Verdict:
    """Either problems or facts. `base` is what the folder was measured against, None when no base could be told."""

    base: str | None
    problems: list[Problem]
    facts: AdapterFacts | None


def examine(folder: Path, base: str | None, base_path: Path | None, max_rank: int | None) -> Verdict:
    """Measure the folder. Without `max_rank` the ceiling is the base's own, or with `base_path` the highest there is.

    Raises ConfigurationError for a `base_path` that is no model, NotFound for an unknown `base`.
    """
    if base_path is not None:
        return _measure(folder, base_path, (), max_rank or RANK_CEILINGS[-1], base=str(base_path), stated=True)
    try:
        with registry_session() as session:
            target = adapter_intake.find_target(session, folder, base)
    except AdapterRejected as refusal:
        return Verdict(None, [Problem(refusal.reason, refusal.message, refusal.repair)], None)
    return _measure(
        folder, target.path, target.names, max_rank or target.max_rank, base=target.base, stated=target.stated
    )


def show(folder: Path, verdict: Verdict, *, as_json: bool) -> None:
    """Print a verdict."""
    if as_json:
        problems = [asdict(problem) for problem in verdict.problems]
        output.print_json({"base": verdict.base, "problems": problems, "facts": _facts(verdict.facts)})
    elif verdict.facts is not None:
        output.record({"good_for": verdict.base, **(_facts(verdict.facts) or {})}, as_json=False)
    else:
        for problem in verdict.problems:
            typer.echo(f"{problem.reason}: {problem.message}\n  repair: {problem.repair}")
        if verdict.base is None:
            output.hint("Nothing was measured, since no base could be told: give --base NAME or --base-path DIR.")
        output.hint(f"{folder}: not servable.")


def _measure(folder: Path, model: Path, names: Collection[str], max_rank: int, *, base: str, stated: bool) -> Verdict:
    measures: Mapping[str, Any] = {
        "base_shapes": adapter_files.base_shapes(model),
        "base_names": names,
        "max_rank": max_rank,
        "max_bytes": get_settings().max_adapter_bytes,
        "base_stated": stated,
    }
    try:
        return Verdict(base, [], adapter_files.check(folder, **measures))
    except AdapterRejected:
        # `check` stops at the first problem; a tenant wants to mend all in one go.
        return Verdict(base, adapter_files.problems(folder, **measures), None)


def _facts(facts: AdapterFacts | None) -> dict[str, Any] | None:
    if facts is None:
        return None
    kept = asdict(facts)
    del kept["files"]
    return kept
