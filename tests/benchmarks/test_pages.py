"""Pages made from results: figures judged against their targets, tables as they were left."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import pages

RESULT: dict[str, Any] = {
    "figures": {"jain": 0.995, "small_tenant_p95_ratio": 2.5, "other": 3.0, "submit_over_copy": None},
    "machine": {"cpu": "A CPU", "cores": 2, "memory_gib": 8.0, "system": "Linux x86_64", "python": "3.11.7"},
    "commit": "0123456789ab",
    "raw": {"tables": [{"title": "Speeds", "columns": ["arm", "tok/s"], "rows": [["a|b", 12]]}]},
}


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("jain", 0.99, True),
        ("jain", 0.98, False),
        ("step_time_loads", 0, True),
        ("step_time_loads", 1, False),
        ("unknown", 1.0, None),
        ("jain", None, None),
    ],
)
def test_a_figure_meets_its_target_or_not_or_has_none(name: str, value: float | None, verdict: bool | None) -> None:
    assert pages.met(name, value) is verdict


def test_a_page_has_figures_with_verdicts_machine_commit_tables_and_charts() -> None:
    page = pages.page("fairness", "Tenants against each other.", RESULT, ["fairness-shares.png"])

    assert "| `jain` | 0.995 | >= 0.99 | yes |" in page
    assert "| `small_tenant_p95_ratio` | 2.5 | <= 2.0 | **no** |" in page
    assert "| `other` | 3 |  |  |" in page
    assert "| `submit_over_copy` | not taken | >= 0.35 |  |" in page
    assert "`0123456789ab` on A CPU, 2 cores, 8.0 GiB" in page
    assert "## Speeds\n\n| arm | tok/s |\n| --- | --- |\n| a\\|b | 12 |" in page
    assert "![fairness-shares](fairness-shares.png)" in page


def test_the_front_page_links_every_benchmark() -> None:
    front = pages.index({"fairness": RESULT, "dispatch": RESULT | {"figures": {"dispatch_1m_over_1k": 1.5}}})

    assert front.index("[dispatch](dispatch.md)") < front.index("[fairness](fairness.md)")
    assert "| `dispatch_1m_over_1k` | 1.5 | <= 2.0 | yes |" in front


def test_a_result_without_tables_makes_a_page_too() -> None:
    page = pages.page("submit", "Submitting.", RESULT | {"raw": {"runs": [1]}})

    assert page.startswith("# Benchmark: submit\n\nSubmitting.\n\n## Figures")
