"""From a benchmark's result to its page under docs/benchmarks: figures against their targets, tables, links to charts.

Pure text; the charts themselves are `charts.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TARGETS: dict[str, tuple[str, float]] = {
    "lorry_over_celery_c8": (">=", 2.0),
    "lorry_over_script": (">=", 0.93),
    "lorry_over_bound": (">=", 0.93),
    "equal_held_ratio": (">=", 0.97),
    "worst_wait_over_bound": ("<=", 1.0),
    "activations_over_optimum": ("<=", 1.15),
    "farthest_over_lru": ("<=", 1.0),
    "step_time_loads": ("<=", 0.0),
    "overhead_smollm2": (">=", 0.93),
    "overhead_h512": (">=", 0.85),
    "jain": (">=", 0.99),
    "small_tenant_p95_ratio": ("<=", 2.0),
    "dispatch_1m_over_1k": ("<=", 2.0),
    "every_tenant_first_round": (">=", 1.0),
    "pipeline_over_celery_noop": (">=", 0.5),
    "submit_over_copy": (">=", 0.35),
    "api_rss_growth_mib": ("<=", 64.0),
    "bad_lines_right": (">=", 1.0),
    "polling_p99_ms_100": ("<=", 200.0),
    "polling_p99_ms_200": ("<=", 200.0),
    "polling_p99_ms_300": ("<=", 200.0),
    "polling_refused": ("<=", 0.0),
    "storm_answers_right": (">=", 1.0),
}


def met(name: str, value: float | None) -> bool | None:
    """Whether a figure meets its target; None when it has none, or was not taken."""
    if name not in TARGETS or value is None:
        return None
    sign, target = TARGETS[name]
    return value >= target if sign == ">=" else value <= target


def page(name: str, about: str, result: Mapping[str, Any], charts: Sequence[str] = ()) -> str:
    """A whole Markdown page. `about`: the program's docstring; `charts`: file names beside the page."""
    parts = [
        f"# Benchmark: {name}",
        about.strip(),
        "## Figures",
        figure_table(result["figures"]),
        f"Measured at commit `{result['commit']}` on {machine(result['machine'])}.",
    ]
    for table in tables(result):
        parts += [f"## {table['title']}", markdown_table(table["columns"], table["rows"])]
    parts += [f"![{chart.removesuffix('.png')}]({chart})" for chart in charts]
    return "\n\n".join(parts) + "\n"


def index(results: Mapping[str, Mapping[str, Any]]) -> str:
    """The front page: every figure of every benchmark, with its target."""
    rows = [
        [f"[{name}]({name}.md)", f"`{figure}`", *_judged(figure, value)]
        for name, result in sorted(results.items())
        for figure, value in result["figures"].items()
    ]
    table = markdown_table(["benchmark", "figure", "value", "target", "met"], rows)
    return f"# Benchmarks\n\nMade by `make bench`; each name links to its page.\n\n{table}\n"


def figure_table(figures: Mapping[str, float | None]) -> str:
    """Figures by name, with targets."""
    rows = [[f"`{name}`", *_judged(name, value)] for name, value in figures.items()]
    return markdown_table(["figure", "value", "target", "met"], rows)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [list(columns), ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def tables(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The tables that a benchmark left in its raw values: `{"title", "columns", "rows"}` each."""
    raw = result["raw"]
    found: Sequence[Mapping[str, Any]] = raw.get("tables", ()) if isinstance(raw, dict) else ()
    return found


def machine(facts: Any) -> str:
    """One line for a machine."""
    if not isinstance(facts, dict):
        return str(facts)
    return f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {facts['system']}"


def _judged(name: str, value: float | None) -> list[str]:
    verdict = met(name, value)
    target = " ".join(map(str, TARGETS[name])) if name in TARGETS else ""
    return ["not taken" if value is None else f"{value:.4g}", target, {True: "yes", False: "**no**", None: ""}[verdict]]
