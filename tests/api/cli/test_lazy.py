"""The command table: quick help, errors as one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from api.cli import _Commands
from api.cli.lazy import LazyCommand
from registry.settings import get_settings
from tests.api.cli.conftest import Lorry


def test_help_names_every_command_without_loading_the_registry() -> None:
    script = (
        "import sys\nfrom api.cli import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print([m for m in ('sqlalchemy', 'celery', 'fastapi', 'pydantic_settings') if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.splitlines()[-1] == "[]"
    for command in ("up", "demo", "worker", "tenants", "keys", "bases", "deployments", "adapters", "jobs", "status"):
        assert command in told.stdout


@pytest.mark.parametrize("name", sorted(_Commands.entries))
def test_every_command_of_the_table_loads_and_has_help(name: str, offline: Lorry) -> None:
    answer = offline(name, "--help")
    assert answer.status == 0
    assert f"lorry {name}" in answer.out
    shown = LazyCommand(name, _Commands.entries[name]).help
    assert shown
    assert shown in answer.out.replace("\n", " ")


def test_a_database_that_is_away_is_one_line_and_status_1(offline: Lorry) -> None:
    answer = offline("tenants", "list")
    assert answer.status == 1
    assert answer.out == ""
    assert answer.err.count("\n") == 1
    assert "[unavailable]" in answer.err
    assert "lorry up" in answer.err


def test_a_wrong_setting_is_named_without_its_value(offline: Lorry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORRY_API_PORT", "not-a-port")
    get_settings.cache_clear()
    answer = offline("tenants", "list")
    assert answer.status == 1
    assert "LORRY_API_PORT" in answer.err
    assert "not-a-port" not in answer.err


def test_a_usage_error_has_status_2(offline: Lorry) -> None:
    assert offline("tenants", "create").status == 2
    assert offline("no-such-command").status == 2
