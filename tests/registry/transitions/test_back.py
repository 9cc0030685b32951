"""Back to queued: handed back unharmed, rescued with a crash counted where the engine had it, messages lost."""

from __future__ import annotations

import uuid

import pytest

from registry import transitions
from registry.db import Database
from registry.states import State
from registry.transitions.back import MAX_CRASHES
from tests.world import World

UNTOUCHED = ("worker", "claimed_at", "started_at", "dispatched_at", "turn")


def run(world: World, db: Database, *, started: bool) -> uuid.UUID:
    """Pick and claim what waits; the worker's id."""
    worker = world.worker()
    claimed = world.claim(worker, world.pick())
    if started:
        with db.transaction() as session:
            transitions.start(session, [(c.job_id, c.fence) for c in claimed])
    return worker


def test_a_job_handed_back_waits_as_if_it_had_never_been_picked(system_db: Database, world: World) -> None:
    job_id = world.job()
    run(world, system_db, started=True)
    with system_db.transaction() as session:
        assert transitions.hand_back(session, [(job_id, 1)]) == {job_id}
    row = world.row(job_id)
    assert [row[name] for name in UNTOUCHED] == [None] * len(UNTOUCHED)
    assert (row["state"], row["attempts"], row["crashes"], row["fence"]) == ("queued", 0, 0, 1)


def test_a_retry_spends_one_attempt(system_db: Database, world: World) -> None:
    job_id = world.job()
    run(world, system_db, started=True)
    with system_db.transaction() as session:
        transitions.hand_back(session, [(job_id, 1)], spends="attempt")
    [claimed] = world.claim(world.worker(), world.pick())
    assert (claimed.attempts, claimed.crashes) == (1, 0)


def test_handing_back_nothing_is_nothing(system_db: Database) -> None:
    with system_db.transaction() as session:
        assert transitions.hand_back(session, []) == set()


def test_a_rescued_job_counts_a_crash_only_if_the_engine_had_it(system_db: Database, world: World) -> None:
    for started, crashes in ((False, 0), (True, 1)):
        job_id = world.job()
        worker = run(world, system_db, started=started)
        with system_db.transaction() as session:
            assert transitions.rescue(session, worker) == ({job_id}, set())
        row = world.row(job_id)
        assert (row["state"], row["crashes"], row["started_at"]) == ("queued", crashes, None)
        with system_db.transaction() as session:
            transitions.cancel(session, "acme", job_id)


def test_what_was_lost_in_a_death_is_marked_until_it_is_claimed_again(system_db: Database, world: World) -> None:
    job_id = world.job()
    worker = run(world, system_db, started=True)
    with system_db.transaction() as session:
        transitions.rescue(session, worker)
    assert world.row(job_id)["rescued"]
    [sent] = world.pick()
    assert world.row(job_id)["rescued"], "its message may be lost yet"
    world.claim(world.worker(), [sent])
    assert not world.row(job_id)["rescued"]


@pytest.mark.parametrize(("spends", "rescued"), [("crash", True), ("attempt", False), ("nothing", False)])
def test_what_is_handed_back_is_marked_if_its_engine_died(
    system_db: Database, world: World, spends: transitions.Spends, rescued: bool
) -> None:
    job_id = world.job()
    run(world, system_db, started=True)
    with system_db.transaction() as session:
        transitions.hand_back(session, [(job_id, 1)], spends=spends)
    assert world.row(job_id)["rescued"] == rescued


def test_rescue_takes_only_what_that_worker_held(system_db: Database, world: World) -> None:
    mine, other = world.worker(), world.worker()
    kept = world.job_in(State.RUNNING, worker=other)
    taken = world.job_in(State.RUNNING, worker=mine)
    with system_db.transaction() as session:
        assert transitions.rescue(session, mine) == ({taken}, set())
    assert world.state(kept) == "running"


def test_the_third_crash_fails_the_job_as_worker_lost(system_db: Database, world: World) -> None:
    job_id = world.job()
    for crash in range(1, MAX_CRASHES + 1):
        worker = run(world, system_db, started=True)
        with system_db.transaction() as session:
            again, given_up = transitions.rescue(session, worker)
        assert (again, given_up) == (({job_id}, set()) if crash < MAX_CRASHES else (set(), {job_id}))
    row = world.row(job_id)
    assert (row["state"], row["error_code"], row["crashes"]) == ("failed", "worker_lost", 3)


def test_a_job_with_two_crashes_that_had_not_started_waits_again(system_db: Database, world: World) -> None:
    job_id = world.job()
    for started in (True, True, False):
        worker = run(world, system_db, started=started)
        with system_db.transaction() as session:
            transitions.rescue(session, worker)
    row = world.row(job_id)
    assert (row["state"], row["crashes"]) == ("queued", 2)


def test_a_rescued_jobs_first_worker_can_no_longer_settle_it(system_db: Database, world: World) -> None:
    job_id = world.job()
    first = run(world, system_db, started=True)
    with system_db.transaction() as session:
        transitions.rescue(session, first)
    run(world, system_db, started=True)
    with system_db.transaction() as session:
        assert transitions.settle(session, [transitions.Outcome(job_id, 1, "succeeded", text="old")]) == set()
        assert transitions.settle(session, [transitions.Outcome(job_id, 2, "succeeded", text="new")]) == {job_id}


def test_a_lost_message_puts_its_job_back_and_spends_nothing(system_db: Database, world: World) -> None:
    lost, claimed = world.job(), world.job()
    picked = world.pick()
    world.claim(world.worker(), [claimed])
    with system_db.transaction() as session:
        assert transitions.message_lost(session, picked) == {lost}
    row = world.row(lost)
    assert (row["state"], row["turn"], row["attempts"], row["crashes"], row["fence"]) == ("queued", None, 0, 0, 0)
    assert world.state(claimed) == "running"
