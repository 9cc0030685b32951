"""The submit benchmark runs, and what it measures holds: in a small form always, whole in the long form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def figures_of(json_path: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.submit", "--json", str(json_path), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(json_path.read_text("utf-8"))
    return found


def test_bad_lines_are_told_by_number_and_memory_stays(tmp_path: Path) -> None:
    found = figures_of(tmp_path / "figures.json", "--quick")
    assert found["figures"]["bad_lines_right"] == 1.0
    assert found["figures"]["api_rss_growth_mib"] <= 64
    # Other tests may run beside this one: the ratio itself is for the quiet machine of the long form.
    assert found["figures"]["submit_over_copy"] > 0.1
    assert {"machine", "commit", "raw"} <= found.keys()


@pytest.mark.long
def test_fifty_thousand_lines_go_in_at_a_third_of_what_copy_alone_takes(tmp_path: Path) -> None:
    figures = figures_of(tmp_path / "figures.json")["figures"]
    assert figures["submit_over_copy"] >= 0.35
    assert figures["submit_rows_s"] >= 50_000 / 15
    assert figures["api_rss_growth_mib"] <= 64
    assert figures["bad_lines_right"] == 1.0
