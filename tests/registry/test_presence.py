"""Worker rows: alive by the database's clock, dead once and for all."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from sqlalchemy import text

from registry import presence, transitions
from registry.db import Database
from registry.presence import Beat
from registry.states import State
from tests.world import World

REPORT = Beat(held=3, live=2, residency={"slots": ["acme/tickets@1"]})


def age(db: Database, worker: uuid.UUID, seconds: float) -> None:
    with db.transaction() as session:
        session.execute(
            text("UPDATE workers SET beat_at = clock_timestamp() - make_interval(secs => :s) WHERE id = :id"),
            {"s": seconds, "id": worker},
        )


def wait_until_up_for(db: Database, lease_s: float) -> None:
    """The servers of a test run are young: nobody is dead before they have been up for a lease."""
    deadline_s = time.monotonic() + 10
    query = text("SELECT clock_timestamp() - pg_postmaster_start_time() > make_interval(secs => :s)")
    with db.transaction() as session:
        while not session.scalar(query, {"s": lease_s}):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)


def test_a_worker_starts_becomes_ready_and_beats(system_db: Database, world: World) -> None:
    world.base()
    with system_db.transaction() as session:
        worker = presence.register(session, "w1", "Tiny", "host", 42, 8)
        [row] = presence.all_workers(session)
        assert (row.state, row.capacity, row.pid) == ("starting", 8, 42)
        assert presence.become(session, worker, "ready")
        assert presence.beat(session, worker, REPORT)
        session.refresh(row)
        assert (row.state, row.held, row.live, row.residency) == ("ready", 3, 2, {"slots": ["acme/tickets@1"]})


def test_a_beat_is_the_database_clocks(system_db: Database, world: World) -> None:
    worker = world.worker()
    age(system_db, worker, 3600)
    with system_db.transaction() as session:
        presence.beat(session, worker, REPORT)
        assert session.scalar(text("SELECT beat_at = now() FROM workers"))


@pytest.mark.parametrize("ending", ["ended", "dead"])
def test_a_beat_after_the_end_is_false_and_changes_nothing(system_db: Database, world: World, ending: str) -> None:
    worker = world.worker()
    with system_db.transaction() as session:
        assert presence.become(session, worker, ending)
    age(system_db, worker, 100)
    with system_db.transaction() as session:
        assert presence.beat(session, worker, REPORT) is False
        assert presence.become(session, worker, "ready") is False
        assert presence.beat(session, uuid.uuid4(), REPORT) is False
        assert session.scalar(text("SELECT state FROM workers WHERE beat_at < now() - interval '90 s'")) == ending


def test_only_those_silent_for_a_whole_lease_are_dead_and_only_once(system_db: Database, world: World) -> None:
    wait_until_up_for(system_db, 1.0)
    silent, starting, fresh = world.worker(), world.worker(), world.worker()
    with system_db.transaction() as session:
        session.execute(text("UPDATE workers SET state = 'starting' WHERE id = :id"), {"id": starting})
    for worker in (silent, starting):
        age(system_db, worker, 2)
    with system_db.transaction() as session:
        assert set(presence.silent(session, 1.0)) == {silent, starting}
        declared = [presence.declare_dead(session, worker, 1.0) for worker in (silent, starting, fresh, silent)]
        assert declared == [True, True, False, False]
        assert presence.silent(session, 1.0) == []
        assert [row.id for row in presence.all_workers(session)] == [fresh]
        assert len(presence.all_workers(session, alive_only=False)) == 3


def test_nobody_is_dead_before_the_database_has_been_up_for_a_lease(system_db: Database, world: World) -> None:
    """After an outage every beat is old: that says nothing about the workers."""
    worker = world.worker()
    age(system_db, worker, 200_000)
    with system_db.transaction() as session:
        assert presence.silent(session, 100_000) == []
        assert not presence.declare_dead(session, worker, 100_000)


def test_holding_is_what_the_registry_believes_the_worker_runs(system_db: Database, world: World) -> None:
    mine, other = world.worker(), world.worker()
    kept, cancelled = (world.job_in(State.RUNNING, worker=mine) for _ in range(2))
    world.job_in(State.RUNNING, worker=other)
    with system_db.transaction() as session:
        transitions.cancel(session, "acme", cancelled)
        assert presence.holding(session, mine).keys() == {kept}


def test_what_a_dying_worker_claims_meanwhile_is_rescued_too(system_db: Database, world: World) -> None:
    """A claim that came first holds the worker's row: the death waits for it, and the rescue sees its jobs."""
    wait_until_up_for(system_db, 1.0)
    job_id = world.job()
    worker = world.worker()
    picked = world.pick()
    age(system_db, worker, 60)
    rescued: list[set[uuid.UUID]] = []

    def dispatcher() -> None:
        with system_db.transaction() as session:
            if presence.declare_dead(session, worker, 1.0):
                rescued.append(transitions.rescue(session, worker)[0])

    with system_db.transaction() as claiming:
        assert len(transitions.claim(claiming, picked, "Tiny", worker)) == 1
        thread = threading.Thread(target=dispatcher)
        thread.start()
        wait_until_somebody_waits(system_db)
    thread.join()
    assert rescued == [{job_id}]
    assert world.state(job_id) == "queued"


def wait_until_somebody_waits(db: Database) -> None:
    deadline_s = time.monotonic() + 10
    with db.transaction() as session:
        while not session.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")):
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
