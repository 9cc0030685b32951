"""Adapter versions in and out of service: guarded, under activation's lock, with their open jobs failed."""

from __future__ import annotations

import threading

import psycopg
import pytest
from sqlalchemy import text

from registry import adapter_states, adapters, wake
from registry.db import Database
from registry.errors import AdapterUnavailable, Conflict
from registry.models import Adapter
from registry.transitions import ends
from tests.conftest import plain_url
from tests.workers.planner_rig import until
from tests.world import World

WORDS = "ValueError: the adapter has a shape that the base has not"


def row(database: Database, version: int = 1) -> Adapter:
    with database.transaction() as session:
        return adapters.get(session, "acme", "tickets", version)


@pytest.mark.parametrize("word", ["retire", "quarantine"])
def test_out_of_service_means_inactive_with_a_reason_and_no_open_jobs(
    world: World, system_db: Database, word: str
) -> None:
    adapter, other = world.adapter(), world.adapter("globex")
    queued, dispatched, running = (world.job(model="tickets") for _ in range(3))
    innocent = world.job("globex", model="tickets")
    picked = world.pick()
    world.claim(world.worker(), picked[:2])
    queued = world.job(model="tickets")
    with system_db.transaction() as session:
        change = getattr(adapter_states, word)
        assert change(session, "acme", "tickets", 1, "why")
        assert not change(session, "acme", "tickets", 1, "again")
    found = row(system_db)
    assert (found.is_active, found.state_reason) == (False, "why")
    assert found.state == {"retire": "retired", "quarantine": "quarantined"}[word]
    assert {world.row(job)["error_code"] for job in (queued, dispatched, running)} == {"adapter_unavailable"}
    assert world.state(innocent) in ("dispatched", "running"), f"{other.name} of another tenant is not touched"
    with pytest.raises(AdapterUnavailable), system_db.transaction() as session:
        adapters.activate(session, "acme", "tickets", adapter.version)


def test_a_worker_hears_of_it_with_the_commit(world: World, system_db: Database, database_url: str) -> None:
    world.adapter()
    with psycopg.connect(plain_url(database_url), autocommit=True) as listener:
        listener.execute(f"LISTEN {wake.CANCELLED}")
        with system_db.transaction() as session:
            adapter_states.quarantine(session, "acme", "tickets", 1, "why")
        assert [notice.channel for notice in listener.notifies(timeout=5, stop_after=1)] == [wake.CANCELLED]


def test_many_open_jobs_fail_in_chunks(world: World, system_db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    world.adapter()
    jobs = [world.job(model="tickets") for _ in range(5)]
    few = text(str(ends._FAIL_UNAVAILABLE).replace(f"LIMIT {ends.CHUNK}", "LIMIT 2"))
    monkeypatch.setattr(ends, "_FAIL_UNAVAILABLE", few)
    with system_db.transaction() as session:
        adapter_states.retire(session, "acme", "tickets", 1, "why")
    assert [world.state(job) for job in jobs].count("failed") == 2
    rounds = 0
    while rounds < 10:
        with system_db.transaction() as session:
            if not adapter_states.fail_jobs_of_the_gone(session):
                break
        rounds += 1
    assert rounds == 2
    assert {world.state(job) for job in jobs} == {"failed"}
    assert not row(system_db).has_jobs_to_fail


def test_a_job_that_somebody_has_locked_is_not_forgotten(world: World, system_db: Database) -> None:
    world.adapter()
    job = world.job(model="tickets")
    with system_db.transaction() as locking:
        locking.execute(text("SELECT id FROM jobs WHERE id = :id FOR UPDATE"), {"id": job})
        with system_db.transaction() as session:
            adapter_states.retire(session, "acme", "tickets", 1, "why")
        assert row(system_db).has_jobs_to_fail
    with system_db.transaction() as session:
        assert adapter_states.fail_jobs_of_the_gone(session)
    assert world.state(job) == "failed"


def test_a_released_version_serves_again_but_is_not_active(world: World, system_db: Database) -> None:
    world.adapter()
    with system_db.transaction() as session:
        adapter_states.quarantine(session, "acme", "tickets", 1, "why")
    with system_db.transaction() as session:
        released = adapter_states.release(session, "acme", "tickets", 1)
        assert (released.state, released.is_active, released.state_reason) == ("ready", False, None)
        adapters.activate(session, "acme", "tickets", 1)
    with pytest.raises(Conflict), system_db.transaction() as session:
        adapter_states.release(session, "acme", "tickets", 1)


def test_the_third_refused_load_within_the_hour_quarantines(world: World, system_db: Database) -> None:
    adapter = world.adapter()
    world.adapter()
    job = world.job(model="tickets@1")

    def refused() -> bool:
        with system_db.transaction() as session:
            return adapter_states.count_load_failure(session, "acme", adapter.adapter_id, WORDS, limit=3)

    assert [refused(), refused()] == [False, False]
    with system_db.transaction() as session:
        session.execute(text("UPDATE tenant_adapters SET load_failing_since = now() - interval '61 min'"))
    assert [refused(), refused(), refused()] == [False, False, True]
    found = row(system_db)
    assert (found.state, found.state_reason) == ("quarantined", WORDS)
    assert world.state(job) == "failed"
    assert row(system_db, 2).state == "ready"
    assert not refused(), "out of service, it is not counted any more"


def test_activation_and_quarantine_wait_for_each_other(world: World, system_db: Database) -> None:
    world.adapter()
    world.adapter()
    with system_db.transaction() as activating:
        adapters.activate(activating, "acme", "tickets", 2)
        thread = threading.Thread(target=_quarantine, args=(system_db, 2))
        thread.start()
        with system_db.transaction() as session:
            waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            until(lambda: session.scalar(text(waits)))
    thread.join(10)
    found = row(system_db, 2)
    assert (found.state, found.is_active) == ("quarantined", False)


def _quarantine(database: Database, version: int) -> None:
    with database.transaction() as session:
        adapter_states.quarantine(session, "acme", "tickets", version, "why")
