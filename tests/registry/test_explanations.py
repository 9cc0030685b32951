"""Why a job waits, in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from registry import explanations, jobs, transitions
from registry.db import Database
from registry.shapes import job_view
from registry.states import State
from tests.world import World

NOW = datetime.now(UTC)


@pytest.mark.parametrize("state", list(State))
def test_only_open_jobs_that_do_not_run_yet_wait_for_something(state: State) -> None:
    waits = state in (State.QUEUED, State.DISPATCHED, State.RUNNING)
    assert (explanations.waiting_for(state, None, None, 0) is not None) == waits
    assert explanations.waiting_for(State.RUNNING, NOW, "anything", 0) is None


def test_a_job_that_met_a_dead_worker_is_said_to_run_alone() -> None:
    assert "alone" in str(explanations.waiting_for(State.QUEUED, None, None, 2))


def test_a_rescued_job_is_said_to_go_first(world: World, system_db: Database) -> None:
    job, worker = world.job(), world.worker()
    world.claim(worker, world.pick())
    with system_db.transaction() as session:
        transitions.rescue(session, worker)
        assert "goes first" in str(job_view(jobs.get(session, "acme", job)).waiting_for)


def test_a_held_jobs_reason_is_kept_and_read_by_its_tenant(world: World, system_db: Database) -> None:
    job, worker = world.job(), world.worker()
    world.claim(worker, world.pick())
    with system_db.transaction() as session:
        assert explanations.keep(session, [(job, 1, "all adapter slots are in use" + "!" * 500)]) == {job}
        view = job_view(jobs.get(session, "acme", job))
    assert view.waiting_for is not None
    assert view.waiting_for.startswith("the engine: all adapter slots are in use!")


def test_a_reason_that_comes_too_late_is_not_kept(world: World, system_db: Database) -> None:
    queued, fenced = world.job(), world.job()
    worker = world.worker()
    with system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET state = 'dispatched', turn = 1 WHERE id = :id"), {"id": fenced})
    world.claim(worker, [fenced])
    with system_db.transaction() as session:
        assert explanations.keep(session, [(queued, 0, "x"), (fenced, 7, "x")]) == set()


def test_the_operator_is_told_who_could_run_it(world: World, system_db: Database) -> None:
    world.base()
    with system_db.transaction() as session:
        assert "no worker" in explanations.at_deployment(session, "Tiny")
    world.worker(capacity=8)
    with system_db.transaction() as session:
        assert "1 ready worker(s) hold 0 jobs of the 8" in explanations.at_deployment(session, "Tiny")
