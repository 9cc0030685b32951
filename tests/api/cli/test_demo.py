"""`lorry demo`, the command; the demo itself is tested in tests/demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.cli import demo as command
from demo import run as demo_run
from tests.api.cli.conftest import Lorry


def test_the_options_become_the_plan(offline: Lorry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plans: list[demo_run.Plan] = []

    def run(plan: demo_run.Plan) -> bool:
        plans.append(plan)
        return True

    monkeypatch.setattr(demo_run, "run", run)
    report = tmp_path / "report.json"
    assert offline("demo", "--jobs", "120", "--report", report, "--keep").status == 0
    assert plans == [demo_run.Plan(jobs=120, report=report, onboard_only=False, keep=True)]


def test_a_run_with_a_failed_job_has_status_1(offline: Lorry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "run", lambda plan: False)
    assert offline("demo").status == 1


def test_without_the_repository_it_says_where_the_demo_is(offline: Lorry, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str, *_: Any) -> None:
        assert name == "demo"

    monkeypatch.setattr(command, "find_spec", absent)
    answer = offline("demo")
    assert answer.status == 1
    assert "clone it" in answer.err
