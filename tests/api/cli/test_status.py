"""`lorry status`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import psycopg
import pytest

from api.cli.runstate import RunState, identity
from registry import presence
from registry.presence import Beat
from registry.settings import get_settings
from tests.api.cli.conftest import Lorry
from tests.conftest import plain_url
from tests.world import World


def test_servers_that_are_well_are_named_with_their_versions(lorry: Lorry) -> None:
    answer = lorry("status", "--json")
    assert answer.status == 0
    servers = json.loads(answer.out)["servers"]
    assert [name for name, server in servers.items() if server["ok"]] == ["database", "schema", "broker"]
    assert servers["database"]["detail"].startswith("PostgreSQL ")


def test_servers_that_are_away_are_said_so_with_status_1(offline: Lorry) -> None:
    answer = offline("status")
    assert answer.status == 1
    assert answer.out.count("NOT WELL") == 2
    assert "LORRY_DATABASE_URL" in answer.out
    assert "Backlog" not in answer.out
    told = json.loads(offline("status", "--json").out)
    assert told["deployments"] is told["workers"] is None


@pytest.fixture
def empty_database(database_url: str) -> Iterator[str]:
    """A database that was never migrated."""
    with psycopg.connect(plain_url(database_url), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS never_migrated")
        connection.execute("CREATE DATABASE never_migrated")
        yield database_url.rpartition("/")[0] + "/never_migrated"
        connection.execute("DROP DATABASE never_migrated WITH (FORCE)")


def test_a_database_without_schema_is_told_apart(
    lorry: Lorry, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LORRY_DATABASE_URL", empty_database)
    get_settings.cache_clear()
    answer = lorry("status")
    assert answer.status == 1
    assert "python -m registry.migrations" in answer.out
    assert "[configuration_error]" in lorry("tenants", "list").err


def test_backlog_and_workers_are_counted(lorry: Lorry, world: World) -> None:
    for _ in range(3):
        world.job("acme")
    worker = world.worker(capacity=5)
    resident = world.adapter("acme").adapter_id
    with world.db.transaction() as session:
        presence.beat(session, worker, Beat(held=1, live=1, residency={"slots": [resident, 77]}))
    world.claim(worker, world.pick(1))
    told = json.loads(lorry("status", "--json").out)
    assert told["deployments"] == [{"deployment": "Tiny", "queued": 2, "dispatched": 0, "running": 1, "workers": 1}]
    (row,) = told["workers"]
    assert row["slots"] == ["acme/tickets@1", "#77"]
    assert (row["state"], row["capacity"]) == ("ready", 5)
    assert 0 <= row["beat_age_s"] < 30
    page = lorry("status").out
    assert "Backlog" in page
    assert "Tiny" in page


def test_the_processes_of_a_running_stack_are_shown(lorry: Lorry) -> None:
    state = RunState(get_settings().data_dir)
    state.acquire()
    try:
        processes = {"api": {**identity(os.getpid()), "state": "ready", "restarts": 2}}
        about = {"api_url": "http://here:1", "flower_url": "http://here:2"}
        state.write({"runner": identity(os.getpid()), **about, "processes": processes})
        page = lorry("status").out
        assert "http://here:1" in page
        assert [line.split()[:2] for line in page.splitlines() if line.startswith("api ")] == [["api", "ready"]]
        assert json.loads(lorry("status", "--json").out)["stack"]["processes"]["api"]["restarts"] == 2
    finally:
        state.release()
    assert "no stack is running" in lorry("status").out
