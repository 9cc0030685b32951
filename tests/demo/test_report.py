"""The demo's report: counts, percentiles and swaps from finished jobs."""

import io
from typing import Any

import pytest
from rich.console import Console

from demo.report import Outcome, build_report, percentile, tenant_table
from demo.tickets import TENANTS, DemoTenant, held_out_tickets

ACME, GLOBEX, *_ = TENANTS


def _swap(state: str, load_ms: float = 0.0, activate_ms: float = 0.0, shared_by: int = 1) -> dict[str, Any]:
    return {
        "state": state,
        "fetch_ms": 0.0,
        "load_ms": load_ms,
        "activate_ms": activate_ms,
        "wait_ms": load_ms + activate_ms,
        "evicted": None if state == "hot" else "globex/tickets@1",
        "shared_by": shared_by,
        "stalled_ms": 0.0,
    }


def _outcome(
    tenant: DemoTenant, swap: dict[str, Any], total_ms: float, *, index: int = 0, text: str | None = None
) -> Outcome:
    ticket = held_out_tickets(tenant, index + 1)[index]
    job = {
        "id": f"job_{index}",
        "status": "succeeded",
        "model": "tickets",
        "adapter_version": 1,
        "output": {"text": ticket.summary if text is None else text},
        "usage": {"input_tokens": 70, "output_tokens": 20},
        "timing": {"queued_ms": 5.0, "held_ms": 1.0, "swap": swap, "total_ms": total_ms},
    }
    return Outcome(tenant, ticket, job)


def _failed(tenant: DemoTenant) -> Outcome:
    job = {
        "id": "job_x",
        "status": "failed",
        "model": "tickets",
        "adapter_version": 1,
        "output": None,
        "usage": None,
        "timing": None,
    }
    return Outcome(tenant, held_out_tickets(tenant, 1)[0], job)


def test_a_swap_that_jobs_shared_is_listed_once() -> None:
    shared = _swap("cold", 41.5, 3.5, shared_by=2)
    report = build_report([_outcome(ACME, shared, 900.0, index=0), _outcome(ACME, shared, 950.0, index=1)])
    assert report["swaps"] == [
        {
            "adapter": "acme/tickets@1",
            "state": "cold",
            "fetch_ms": 0.0,
            "load_ms": 41.5,
            "activate_ms": 3.5,
            "evicted": "globex/tickets@1",
            "shared_by": 2,
        }
    ]
    assert report["tenants"]["acme"]["cold"] == 2
    assert report["tenants"]["acme"]["swap_ms"] == {"p50": 45.0, "p99": 45.0}


def test_two_swaps_of_one_adapter_are_two() -> None:
    outcomes = [_outcome(ACME, _swap("cold", 41.2, 3.9), 900.0), _outcome(ACME, _swap("warm", 0.0, 3.9), 400.0)]
    assert [swap["state"] for swap in build_report(outcomes)["swaps"]] == ["cold", "warm"]


def test_totals_are_told_apart_by_whether_the_job_waited_for_a_swap() -> None:
    outcomes = [
        _outcome(ACME, _swap("cold", 40.0, 4.0), 900.0),
        _outcome(ACME, _swap("warm", 0.0, 4.0), 500.0),
        _outcome(ACME, _swap("hot"), 300.0),
    ]
    figures = build_report(outcomes)["tenants"]["acme"]
    assert figures["total_ms"] == {
        "with_swap": {"p50": 500.0, "p99": 900.0},
        "without_swap": {"p50": 300.0, "p99": 300.0},
    }
    assert (figures["hot"], figures["warm"], figures["cold"]) == (1, 1, 1)


def test_each_tenant_has_its_own_figures() -> None:
    report = build_report([_outcome(ACME, _swap("hot"), 1.0), _outcome(GLOBEX, _swap("hot"), 2.0), _failed(GLOBEX)])
    assert report["jobs"] == {"submitted": 3, "succeeded": 2, "failed": 1}
    assert report["tenants"]["acme"]["jobs"] == 1
    assert report["tenants"]["globex"]["jobs"] == 2
    assert report["tenants"]["globex"]["input_tokens"] == 70
    assert report["tenants"]["globex"]["output_tokens"] == 20


def test_a_summary_in_another_tenants_form_lowers_the_form_ratio() -> None:
    mixed_up = held_out_tickets(GLOBEX, 1)[0].summary
    report = build_report([_outcome(ACME, _swap("hot"), 1.0), _outcome(ACME, _swap("hot"), 1.0, text=mixed_up)])
    assert report["form_ok_ratio"] == 0.5
    assert report["order_number_ok_ratio"] == 0.5


def test_a_run_without_a_summary_never_looks_good() -> None:
    report = build_report([_failed(ACME)])
    assert report["form_ok_ratio"] == report["order_number_ok_ratio"] == 0.0
    assert report["tenants"]["acme"]["swap_ms"] == {"p50": None, "p99": None}


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)])
def test_a_percentile_is_a_measured_value(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], share) == expected


def test_the_table_shows_figures_and_a_dash_where_nothing_was_measured() -> None:
    out = io.StringIO()
    Console(file=out, width=160).print(tenant_table(build_report([_outcome(ACME, _swap("hot"), 300.25)])))
    row = next(line for line in out.getvalue().splitlines() if "acme" in line)
    assert "70 / 20" in row
    assert "1 / 0 / 0" in row
    assert "- / -" in row
    assert "300.2 / 300.2" in row
