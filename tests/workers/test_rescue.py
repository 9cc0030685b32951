"""Rescue only when a worker's silence is its own, and each worker by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from registry.db import Database
from tests.world import World
from workers import rescue
from workers.leader import Leader
from workers.rescue import Rescue


class Clock:
    """Stands for time.monotonic."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(rescue, "time", made)
    return made


@pytest.fixture
def leader(system_db: Database) -> Iterator[Leader]:
    made = Leader(system_db.engine, idle_s=60)
    assert made.try_to_lead()
    yield made
    made.resign()


def silence(database: Database) -> None:
    with database.transaction() as session:
        session.execute(text("UPDATE workers SET beat_at = to_timestamp(0)"))


def test_a_silent_workers_jobs_are_taken_back_at_the_first_look(
    world: World, system_db: Database, leader: Leader, clock: Clock
) -> None:
    job = world.job()
    world.claim(world.worker(), world.pick())
    silence(system_db)
    Rescue(0.5).look(leader)
    assert world.state(job) == "queued"


def test_after_a_gap_nobody_is_rescued_for_a_whole_lease(
    world: World, system_db: Database, leader: Leader, clock: Clock
) -> None:
    """The registry hung: no restart tells of it, and nobody could beat."""
    job = world.job()
    world.claim(world.worker(), world.pick())
    rescuer = Rescue(10.0)
    rescuer.look(leader)
    silence(system_db)
    clock.now_s += 60
    for _ in range(10):
        rescuer.look(leader)
        assert world.state(job) == "running"
        clock.now_s += 0.9
    clock.now_s += 1.1
    rescuer.look(leader)
    # The server itself has to have been up for a lease as well; a test's server may be younger.
    with leader.transaction() as session:
        up = session.scalar(text("SELECT pg_postmaster_start_time() < now() - interval '10 s'"))
    assert world.state(job) == ("queued" if up else "running")


def test_a_spare_that_has_seen_the_outage_pauses_too(world: World, leader: Leader, clock: Clock) -> None:
    rescuer = Rescue(0.5)
    rescuer.seen(clock.now_s)
    clock.now_s += 1.0
    job = world.job()
    world.claim(world.worker(), world.pick())
    silence(world.db)
    rescuer.look(leader)
    assert world.state(job) == "running"


def test_one_that_froze_with_its_locks_keeps_nobody_elses_jobs(
    world: World, system_db: Database, leader: Leader
) -> None:
    frozen, dead = world.worker(), world.worker()
    jobs = [world.job(), world.job()]
    picked = world.pick()
    world.claim(frozen, picked[:1])
    world.claim(dead, picked[1:])
    silence(system_db)
    with system_db.transaction() as session:
        session.execute(text("SELECT id FROM workers WHERE id = :id FOR SHARE"), {"id": frozen})
        rescue.take_back(leader, 0.5)
        assert [world.state(job) for job in picked] == ["running", "queued"]
    rescue.take_back(leader, 0.5)
    assert {world.state(job) for job in jobs} == {"queued"}
