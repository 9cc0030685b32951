"""The `lorry` command, called in this process against the tests' servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from registry.db import Database
from registry.settings import Settings, get_settings
from tests.api.cli.called import Answer, call
from tests.api.cli.tenant import Tenant, live_tenant
from tests.world import World

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


@pytest.fixture
def tenant(monkeypatch: pytest.MonkeyPatch, settings: Settings, world: World) -> Iterator[Tenant]:
    """`tenant("batches", "list")`: acme's own commands, over HTTP, with the base `Tiny` registered."""
    world.base()
    with live_tenant(monkeypatch, settings, world.key) as made:
        yield made
