"""`lorry plan`: offline, from a folder and a number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli import app

RUN = CliRunner()


def test_it_plans_without_a_registry(tiny_base_dir: Path) -> None:
    asked = ["plan", "--base-path", str(tiny_base_dir), "--memory", "1GiB", "--adapters", "30", "--rank", "8"]

    shown = RUN.invoke(app, [*asked, "--jobs-per-hour", "1000"])

    assert shown.exit_code == 0, shown.output
    for part in ("slots that fit", "nothing will ever swap", "full model per tenant", "Workers: 1", "estimated"):
        assert part in shown.output


def test_json_has_the_numbers(tiny_base_dir: Path) -> None:
    shown = RUN.invoke(app, ["plan", "--base-path", str(tiny_base_dir), "--memory", "1GiB", "--json"])

    assert json.loads(shown.stdout)["slots"] == 256


def test_a_calibration_replaces_the_estimate(tiny_base_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "simulation.json"
    file.write_text(json.dumps({"raw": {"cost": {"base_s": 1.0, "row_s": 0.1, "swap_s": 1.0}}}), "utf-8")
    asked = ["plan", "--base-path", str(tiny_base_dir), "--memory", "1GiB", "--jobs-per-hour", "1000"]

    shown = RUN.invoke(app, [*asked, "--calibration", str(file), "--json"])

    assert json.loads(shown.stdout)["workers"] > 1


def test_what_does_not_fit_is_said(tiny_base_dir: Path) -> None:
    shown = RUN.invoke(app, ["plan", "--base-path", str(tiny_base_dir), "--memory", "0.05MiB"])

    assert shown.exit_code == 1
    assert "Not even one adapter fits" in shown.output


@pytest.mark.parametrize("memory", ["80", "GiB", "-1GiB", "eighty GiB", "infGiB"])
def test_memory_needs_a_number_and_a_unit(tiny_base_dir: Path, memory: str) -> None:
    shown = RUN.invoke(app, ["plan", "--base-path", str(tiny_base_dir), f"--memory={memory}"])

    assert shown.exit_code == 1
    assert "memory is" in shown.output
