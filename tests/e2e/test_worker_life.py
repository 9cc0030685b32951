"""Workers that die, drain, freeze; brokers that forget: every job still finishes, once."""

from __future__ import annotations

import os
import signal
import uuid

import redis
from sqlalchemy import text

from tests.e2e.crew import Crew, Member, eventually
from tests.world import World

SLOW = {"LORRY_FAKE_STEP_MS": "20"}


def submit(world: World, count: int) -> list[uuid.UUID]:
    """Jobs of two tenants, of 16 tokens each."""
    for tenant in ("acme", "globex"):
        world.adapter(tenant)
    return [world.job(("acme", "globex")[n % 2], model="tickets") for n in range(count)]


def busy(crew: Crew, member: Member) -> None:
    """Wait until this worker has jobs in its engine."""
    eventually(lambda: crew.worker_row(member).get("live", 0) > 0)


def all_once(crew: Crew, jobs: list[uuid.UUID]) -> None:
    """The checker: everything acknowledged has succeeded, with one output and one tally each."""
    crew.finished(len(jobs))
    assert crew.states() == {"succeeded": len(jobs)}
    assert set(crew.outputs()) == set(jobs)
    with crew.db.transaction() as session:
        counted = session.scalar(
            text(
                "SELECT (SELECT coalesce(sum(succeeded), 0) FROM tallies)"
                " + (SELECT coalesce(sum(succeeded), 0) FROM usage_days)"
            )
        )
    assert counted == len(jobs)


def test_kill_9_of_a_worker_loses_and_doubles_nothing(crew: Crew, world: World) -> None:
    jobs = submit(world, 60)
    crew.dispatcher()
    victim = crew.worker(**SLOW)
    busy(crew, victim)
    victim.kill()
    crew.worker(**SLOW)
    all_once(crew, jobs)
    assert any(job.fence > 1 for job in crew.jobs()), "the kill came too late to prove anything"


def test_sigterm_drains_hands_back_and_exits_0(crew: Crew, world: World) -> None:
    jobs = submit(world, 60)
    crew.dispatcher()
    first = crew.worker(**SLOW)
    busy(crew, first)
    first.terminate()
    assert first.exit_code(within_s=30) == 0
    assert crew.worker_row(first)["state"] == "ended"
    assert crew.states().get("running", 0) == 0
    crew.worker(**SLOW)
    all_once(crew, jobs)


def test_a_frozen_worker_loses_its_jobs_and_its_late_writes_change_nothing(crew: Crew, world: World) -> None:
    jobs = submit(world, 40)
    crew.dispatcher()
    zombie = crew.worker(device="1", **SLOW)
    busy(crew, zombie)
    before = crew.worker_row(zombie)["id"]
    zombie.freeze()
    crew.worker(**SLOW)
    all_once(crew, jobs)
    zombie.thaw()
    eventually(lambda: crew.worker_row(zombie)["id"] != before)
    all_once(crew, jobs)


def test_a_flushed_broker_loses_no_job(crew: Crew, world: World, broker_url: str) -> None:
    jobs = submit(world, 60)
    crew.dispatcher()
    eventually(lambda: crew.states().get("dispatched", 0) > 0)
    redis.Redis.from_url(broker_url).flushall()
    crew.worker()
    all_once(crew, jobs)


def test_a_second_dispatcher_waits_and_takes_over(crew: Crew, world: World) -> None:
    first = crew.dispatcher()
    eventually(lambda: b"this dispatcher leads" in first.log.read_bytes())
    spare = crew.dispatcher()
    jobs = submit(world, 20)
    crew.worker()
    crew.finished(len(jobs))
    assert b"this dispatcher leads" not in spare.log.read_bytes()
    os.kill(first.pid, signal.SIGKILL)
    more = submit(world, 20)
    all_once(crew, jobs + more)


def test_a_job_that_kills_its_worker_fails_alone(crew: Crew, world: World) -> None:
    jobs = submit(world, 20)
    crew.dispatcher()
    world.adapter("acme")
    poison = world.job("acme", model="tickets", document="[[fake:poison]]")
    for _ in range(4):
        if crew.states().get("failed"):
            break
        worker = crew.worker(**SLOW)
        eventually(lambda w=worker: w.process.poll() is not None or crew.states().get("failed"))
    crew.worker()
    eventually(lambda: crew.states() == {"succeeded": len(jobs), "failed": 1}, within_s=60)
    assert {job.id: job.error_code for job in crew.jobs() if job.error_code} == {poison: "worker_lost"}
