"""docs/reliability.md, made of docs/reliability.json: `python -m tests.faults.page`."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
PROMISES: dict[str, tuple[str, float, str]] = {
    "kills": (">=", 200, "SIGKILLs at random moments, under load, a second worker up"),
    "lost": ("<=", 0, "acknowledged jobs without an end, batches that are not whole, webhooks that never came"),
    "doubled": ("<=", 0, "results, bills or submissions that are there twice"),
    "wrong": ("<=", 0, "kinds of other faults: outputs of another adapter, counts that do not add up, leaks"),
    "worker_recovery_p100_s": (
        "<=",
        45,
        "from a worker's SIGKILL until its last job is another worker's, seconds, worst",
    ),
    "redis_resume_s": ("<=", 15, "from the broker's return until every worker has taken work again, seconds, worst"),
    "sigterm_exit_s": ("<=", 30, "from SIGTERM to the worker's exit, seconds, worst"),
    "false_rescues": ("<=", 0, "workers declared dead, or jobs taken from them, while nothing was wrong"),
}

TEMPLATE = """# Reliability

What happened when everything was killed. Made by `make faults` (`python -m tests.faults.long`): three workers, two
dispatchers, two io workers, the API, PostgreSQL and Valkey as real processes, the engine without a model, beat and
lease as shipped. Five tenants submit single jobs and batches over HTTP the whole time; a supervisor starts again what
dies. The short form of the same faults, row by row, is part of `make test`.

| figure | value | promise | what it counts |
|---|---:|---:|---|
{promises}

Seed {seed}, commit `{commit}`, {cores} cores ({cpu}), {minutes:.0f} minutes, {jobs:,} jobs; {healthy_s:.0f} s of that
undisturbed, at {rate:.0f} jobs/s.

## By kind

| killed | times | measured until | median s | worst s |
|---|---:|---|---:|---:|
{kinds}

A worker that is started again under its name gives its earlier jobs back at once; one that never comes back is found by
its lease. `worker (beside others)`: PostgreSQL and the broker were killed meanwhile, and after an outage of the
database nobody is declared dead for a whole lease; these are shown, not promised.

## Beside that

- {given_up} jobs ended as `worker_lost`: in the engine at three deaths, at the last one alone.
- {announced} jobs had a webhook; {unheard} were never heard of, {heard_twice} more than once under one id (delivery is
  at least once).
- The API answered {statuses}; the slowest answer took {slowest_s:.1f} s.
- Undisturbed, the fastest-growing process gained {growth:.2f} MB a minute; connections to PostgreSQL went from {first}
  to {last}.
"""


def met(name: str, value: float) -> bool:
    """Whether a figure keeps its promise."""
    sign, target, _ = PROMISES[name]
    return value >= target if sign == ">=" else value <= target


def kept(figures: Mapping[str, float]) -> bool:
    """Whether all do; the number of kills is the caller's choice."""
    return all(met(name, figures[name]) for name in PROMISES if name != "kills")


def page(result: Mapping[str, Any]) -> str:
    """The whole page."""
    figures, raw, machine = result["figures"], result["raw"], result["machine"]
    measured, healthy = raw["measured"], raw["healthy"]
    promises = [
        f"| `{name}` | {figures[name]:.4g} | {sign} {target:g} | {about} |"
        for name, (sign, target, about) in PROMISES.items()
    ]
    return TEMPLATE.format(
        promises="\n".join(promises),
        kinds="\n".join(_kinds(measured)),
        minutes=raw["seconds"] / 60,
        seed=raw["seed"],
        commit=result["commit"],
        cores=machine["cores"],
        cpu=machine["cpu"],
        jobs=int(figures["jobs"]),
        healthy_s=healthy["seconds"],
        rate=healthy["jobs_per_s"],
        statuses=_statuses(raw["traffic"]["statuses"]),
        slowest_s=raw["traffic"]["slowest_s"],
        growth=healthy["memory_mb_per_min"],
        first=healthy["connections"][0],
        last=healthy["connections"][1],
        **{name: raw[name] for name in ("given_up", "announced", "unheard", "heard_twice")},
    )


def _kinds(measured: Mapping[str, Any]) -> list[str]:
    kills = measured["kills"]
    rows = (
        ("worker", "worker_recovery_s", "its jobs are claimed elsewhere"),
        ("worker (beside others)", "worker_recovery_beside_others_s", "as above"),
        ("redis", "redis_resume_s", "every worker claims again"),
        ("postgres", "postgres_resume_s", "a job is settled again"),
    )
    lines = []
    for kind, name, until in rows:
        values = measured[name]
        times = len(values) if " " in kind else kills.get(kind, 0)
        middle, worst = (f"{statistics.median(values):.1f}", f"{max(values):.1f}") if values else ("", "")
        lines.append(f"| {kind} | {times} | {until} | {middle} | {worst} |")
    return lines + [f"| {kind} | {kills.get(kind, 0)} | | | |" for kind in ("dispatcher", "io")]


def _statuses(statuses: Mapping[str, int]) -> str:
    words = {"0": "nothing (cut off)"}
    return ", ".join(f"{words.get(str(status), status)} {times} times" for status, times in sorted(statuses.items()))


def main() -> int:
    """Write the page."""
    result = json.loads((DOCS / "reliability.json").read_text("utf-8"))
    (DOCS / "reliability.md").write_text(page(result), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
