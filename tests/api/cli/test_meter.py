"""The bar on a terminal, and lines elsewhere."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from api.cli.meter import Meter, line


def batch(completed: int, failed: int = 0, *, rate: float = 2.0, eta_s: float | None = None) -> dict[str, Any]:
    counts = {"total": 10, "completed": completed, "failed": failed}
    return {"request_counts": counts, "lorry": {"rate_jobs_s": rate, "eta_s": eta_s}}


@pytest.mark.parametrize(
    ("shown", "swaps", "told"),
    [
        (batch(4, 1, rate=2.04, eta_s=5.2), 2.0, "4 of 10 done, 1 failed, 2.0/s, 5 s left, 2 swaps"),
        (batch(0, rate=0.0), None, "0 of 10 done, 0 failed"),
        (batch(1, eta_s=61.0), 0.99, "1 of 10 done, 0 failed, 2.0/s, 1 min 01 s left, 1 swap"),
        (batch(1, eta_s=7325.0), 0.0, "1 of 10 done, 0 failed, 2.0/s, 2 h 02 min left, 0 swaps"),
    ],
)
def test_a_batch_in_words(shown: dict[str, Any], swaps: float | None, told: str) -> None:
    assert line(shown, swaps) == told


def test_elsewhere_the_first_and_the_last_are_told_and_what_comes_at_once_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Meter(Console(file=io.StringIO())) as meter:
        for done in (0, 1, 2, 9, 10):
            meter.show(batch(done), None)
    told = capsys.readouterr()
    assert told.out == ""
    assert [text.split(",")[0] for text in told.err.splitlines()] == ["0 of 10 done", "10 of 10 done"]


def test_on_a_terminal_it_is_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    with Meter(Console(file=screen, force_terminal=True, width=100)) as meter:
        meter.show(batch(4, 1, eta_s=3.0), 2.0)
    assert " 50%" in screen.getvalue()
    assert "4 of 10 done, 1 failed, 2.0/s, 3 s left, 2 swaps" in screen.getvalue()
    assert capsys.readouterr().err == ""
