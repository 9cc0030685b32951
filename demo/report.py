"""Owns the demo's report: what finished jobs say about each tenant, each swap and the summaries' quality.

Pure functions over jobs as `GET /v1/jobs/{id}` answers them; no HTTP, no clock, no model library. Times are
milliseconds. A percentile of nothing is None (`-` in the table).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from rich.table import Table

from demo.tickets import DemoTenant, Ticket, form_ok, order_number_ok


@dataclass(frozen=True)
class Outcome:
    """One submitted ticket and the job that came of it, in its terminal state."""

    tenant: DemoTenant
    ticket: Ticket
    job: dict[str, Any]


class Counts(TypedDict):
    submitted: int
    succeeded: int
    failed: int


class Percentiles(TypedDict):
    p50: float | None
    p99: float | None


class TotalMs(TypedDict):
    with_swap: Percentiles
    without_swap: Percentiles


class TenantFigures(TypedDict):
    jobs: int
    input_tokens: int
    output_tokens: int
    hot: int
    warm: int
    cold: int
    swap_ms: Percentiles
    total_ms: TotalMs


class SwapRecord(TypedDict):
    adapter: str
    state: str
    fetch_ms: float
    load_ms: float
    activate_ms: float
    evicted: str | None
    shared_by: int


class Report(TypedDict):
    jobs: Counts
    tenants: dict[str, TenantFigures]
    form_ok_ratio: float
    order_number_ok_ratio: float
    swaps: list[SwapRecord]


def build_report(outcomes: Sequence[Outcome]) -> Report:
    """Return the report of all outcomes; tenants in order of first appearance, ratios over succeeded jobs."""
    succeeded = [outcome for outcome in outcomes if outcome.job["status"] == "succeeded"]
    tenants = dict.fromkeys(outcome.tenant.id for outcome in outcomes)
    return Report(
        jobs=Counts(submitted=len(outcomes), succeeded=len(succeeded), failed=len(outcomes) - len(succeeded)),
        tenants={name: _tenant_figures([o for o in outcomes if o.tenant.id == name]) for name in tenants},
        form_ok_ratio=_ratio(form_ok(o.tenant, o.job["output"]["text"]) for o in succeeded),
        order_number_ok_ratio=_ratio(order_number_ok(o.ticket, o.job["output"]["text"]) for o in succeeded),
        swaps=_swaps(outcomes),
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile, a value that was really measured; None of no values."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def tenant_table(report: Report) -> Table:
    """Return one row a tenant: jobs, tokens, where its adapter was, and what the swaps cost."""
    table = Table(title="Tenants", caption="p50 / p99; swap = fetch + load + activate; times in milliseconds")
    table.add_column("tenant")
    for heading in ("jobs", "tokens in / out", "hot / warm / cold", "swap ms", "total ms, swap", "total ms, no swap"):
        table.add_column(heading, justify="right")
    for name, figures in report["tenants"].items():
        table.add_row(
            name,
            str(figures["jobs"]),
            f"{figures['input_tokens']} / {figures['output_tokens']}",
            f"{figures['hot']} / {figures['warm']} / {figures['cold']}",
            _cell(figures["swap_ms"]),
            _cell(figures["total_ms"]["with_swap"]),
            _cell(figures["total_ms"]["without_swap"]),
        )
    return table


def _tenant_figures(outcomes: Sequence[Outcome]) -> TenantFigures:
    usages = [outcome.job["usage"] for outcome in outcomes if outcome.job.get("usage")]
    timings = [outcome.job["timing"] for outcome in outcomes if _swap_of(outcome)]
    states = [timing["swap"]["state"] for timing in timings]
    costs = [swap["fetch_ms"] + swap["load_ms"] + swap["activate_ms"] for swap in _swaps(outcomes)]
    return TenantFigures(
        jobs=len(outcomes),
        input_tokens=sum(usage["input_tokens"] for usage in usages),
        output_tokens=sum(usage["output_tokens"] for usage in usages),
        hot=states.count("hot"),
        warm=states.count("warm"),
        cold=states.count("cold"),
        swap_ms=_percentiles(costs),
        total_ms=TotalMs(
            with_swap=_percentiles([t["total_ms"] for t in timings if t["swap"]["state"] != "hot"]),
            without_swap=_percentiles([t["total_ms"] for t in timings if t["swap"]["state"] == "hot"]),
        ),
    )


def _swap_of(outcome: Outcome) -> dict[str, Any] | None:
    """Return the job's swap, or None for a job that never reached an engine or ran on the bare base."""
    timing: dict[str, Any] = outcome.job.get("timing") or {}
    return timing.get("swap")


def _swaps(outcomes: Iterable[Outcome]) -> list[SwapRecord]:
    """Return each swap once, though every job that shared it carries it, with the same figures to the last digit."""
    records: list[SwapRecord] = []
    for outcome in outcomes:
        swap = _swap_of(outcome)
        if swap is None or swap["state"] == "hot":
            continue
        record = SwapRecord(
            adapter=f"{outcome.tenant.id}/{outcome.job['model']}@{outcome.job['adapter_version']}",
            state=swap["state"],
            fetch_ms=swap["fetch_ms"],
            load_ms=swap["load_ms"],
            activate_ms=swap["activate_ms"],
            evicted=swap["evicted"],
            shared_by=swap["shared_by"],
        )
        if record not in records:
            records.append(record)
    return records


def _ratio(verdicts: Iterable[bool]) -> float:
    """Return the share of true verdicts; 0 of none, so that a run without a summary never looks good."""
    given = list(verdicts)
    return sum(given) / len(given) if given else 0.0


def _percentiles(values: Sequence[float]) -> Percentiles:
    return Percentiles(p50=percentile(values, 0.5), p99=percentile(values, 0.99))


def _cell(percentiles: Percentiles) -> str:
    return " / ".join("-" if value is None else f"{value:.1f}" for value in (percentiles["p50"], percentiles["p99"]))
