"""A whole GPU worker without Celery: jobs in by id, endings in the registry."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from registry.db import Database
from registry.errors import EngineDead, EngineStartFailed, NotFound
from registry.settings import Settings
from registry.transitions import cancel
from tests.workers.planner_rig import until
from tests.world import World
from workers import gpu
from workers.fake_markers import Marker
from workers.gpu import GpuWorker, assignment, held_capacity

Make = Callable[..., GpuWorker]


@pytest.fixture
def make(world: World, system_db: Database, settings: Settings) -> Iterator[Make]:
    made: list[GpuWorker] = []
    world.base()

    def build(**changes: Any) -> GpuWorker:
        chosen = settings.model_copy(update={"engine": "fake", "drain_grace_s": 0.5, "beat_s": 0.2, **changes})
        made.append(GpuWorker(chosen, "w", assignment(system_db, chosen, "Tiny")))
        made[-1].start()
        return made[-1]

    yield build
    for worker in made:
        worker.close()


def state_of(world: World, worker: GpuWorker) -> str:
    with world.db.transaction() as session:
        return str(session.scalar(text("SELECT state FROM workers WHERE id = :id"), {"id": worker.presence.worker_id}))


def run_all(worker: GpuWorker, jobs: list[uuid.UUID]) -> None:
    """As Celery's threads do, all at once."""
    threads = [threading.Thread(target=worker.run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
        assert not thread.is_alive()


@pytest.mark.parametrize(("max_num_seqs", "max_loras", "held"), [(4, 2, 32), (2, 8, 128), (64, 4, 256), (8, 64, 256)])
def test_a_worker_holds_enough_to_choose_from(max_num_seqs: int, max_loras: int, held: int) -> None:
    assert held_capacity(Settings(held=None), max_num_seqs, max_loras) == held


def test_an_operators_number_of_held_jobs_stands() -> None:
    assert held_capacity(Settings(held=5), 64, 64) == 5


def test_an_unknown_deployment_is_named(system_db: Database, settings: Settings) -> None:
    with pytest.raises(NotFound, match="Nowhere"):
        assignment(system_db, settings, "Nowhere")


def test_jobs_run_to_their_written_ending(make: Make, world: World) -> None:
    world.adapter("acme")
    jobs = [world.job("acme", model="tickets") for _ in range(8)] + [world.job("acme")]
    world.pick()
    run_all(make(), jobs)
    rows = [world.row(job) for job in jobs]
    assert [row["state"] for row in rows] == ["succeeded"] * 9
    assert all(row["timing"]["total_ms"] >= row["timing"]["queued_ms"] > 0 for row in rows)
    assert all(row["started_at"] is not None for row in rows)


def test_a_job_that_is_not_to_be_had_returns_at_once(make: Make, world: World) -> None:
    queued = world.job()
    run_all(make(), [queued, uuid.uuid4()])
    assert world.state(queued) == "queued"


def test_a_prompt_that_does_not_fit_fails_by_its_code(make: Make, world: World) -> None:
    job = world.job(document="x" * 600)
    world.pick()
    run_all(make(), [job])
    assert (world.state(job), world.row(job)["error_code"]) == ("failed", "prompt_too_long")


def test_a_job_of_which_no_prompt_can_be_made_fails_instead_of_running_round_for_ever(
    make: Make, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make()

    def stumble(_claimed: object) -> None:
        raise TypeError("a template with a defect")

    monkeypatch.setattr(worker._preparation, "held_job", stumble)
    job = world.job()
    world.pick()
    run_all(worker, [job])
    assert (world.state(job), world.row(job)["error_code"]) == ("failed", "generation_failed")
    assert "template" not in str(world.row(job)["error_message"])


def test_after_an_engine_death_the_worker_goes_on(make: Make, world: World) -> None:
    worker = make()
    killer = world.job(document=Marker.DEATH)
    world.pick()
    run_all(worker, [killer])
    row = world.row(killer)
    assert (row["state"], row["attempts"], row["crashes"]) == ("queued", 0, 1)
    with world.db.transaction() as session:
        cancel(session, "acme", killer)
    until(lambda: not worker.signs.starting.is_set())
    until(lambda: state_of(world, worker) == "ready")
    after = world.job()
    world.pick()
    run_all(worker, [after])
    assert world.state(after) == "succeeded"


@pytest.mark.parametrize("error", [EngineStartFailed("no memory"), EngineDead("while it started"), OSError()])
def test_an_engine_that_will_not_start_again_is_reported(
    make: Make, world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    worker = make()

    def refuse() -> None:
        raise error

    monkeypatch.setattr(worker._engine, "start", refuse)
    killer = world.job(document=Marker.DEATH)
    world.pick()
    run_all(worker, [killer])
    assert worker.signs.failed.wait(10)
    assert state_of(world, worker) == "starting", "it takes no jobs"
    late = world.job()
    world.pick()
    run_all(worker, [late])
    assert world.state(late) == "queued"
    worker.drain()
    assert state_of(world, worker) == "draining"


def test_a_drain_hands_back_and_close_says_goodbye(make: Make, world: World) -> None:
    worker = make(fake_step_ms=5000)
    job = world.job()
    world.pick()
    thread = threading.Thread(target=worker.run, args=(job,), daemon=True)
    thread.start()
    until(lambda: world.row(job)["started_at"] is not None)
    worker.drain()
    thread.join(10)
    assert world.state(job) == "queued"
    assert world.row(job)["crashes"] == 0


def test_a_worker_that_closes_with_a_job_in_hand_gives_it_back(make: Make, world: World) -> None:
    """Whatever kept the hand-back from being written: nobody would look for the jobs of an ended worker."""
    worker = make(fake_step_ms=5000)
    job = world.job()
    world.pick()
    threading.Thread(target=worker.run, args=(job,), daemon=True).start()
    until(lambda: world.row(job)["started_at"] is not None)
    worker.presence.end()
    assert world.state(job) == "queued"
    worker.close()
    assert world.state(job) == "queued"


def test_tasks_need_an_installed_worker(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_current", None)
    with pytest.raises(EngineStartFailed, match="lorry worker"):
        gpu.current()
    worker = make()
    gpu.install(worker)
    assert gpu.current() is worker
