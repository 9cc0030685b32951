"""The `lorry` command, called in this process against the tests' servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli import app
from registry.db import Database
from registry.settings import Settings, get_settings


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


Lorry = Callable[..., Answer]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Lorry]:
    """`offline("adapters", "check", ...)`: neither database nor broker answers."""
    for name, value in {
        "DATABASE_URL": "postgresql+psycopg://lorry@127.0.0.1:9/lorry",
        "BROKER_URL": "redis://127.0.0.1:9/0",
        "DATA_DIR": str(tmp_path / "data"),
    }.items():
        monkeypatch.setenv(f"LORRY_{name}", value)
    get_settings.cache_clear()
    yield call
    get_settings.cache_clear()


@pytest.fixture
def lorry(
    offline: Lorry, monkeypatch: pytest.MonkeyPatch, settings: Settings, system_db: Database, broker_url: str
) -> Lorry:
    """`lorry("tenants", "list")`, against emptied tables."""
    monkeypatch.setenv("LORRY_DATABASE_URL", settings.resolved_database_url)
    monkeypatch.setenv("LORRY_BROKER_URL", broker_url)
    get_settings.cache_clear()
    return call


def call(*arguments: str | Path) -> Answer:
    """Run one command. An error that is not shown as one line is a bug and fails the test with its own traceback."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="lorry")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)
