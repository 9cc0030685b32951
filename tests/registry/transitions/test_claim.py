"""A worker takes jobs: once, in turn, with everything it needs, and only while it counts as alive."""

from __future__ import annotations

import threading
import uuid

import pytest
from sqlalchemy import text

from registry import explanations, presence, transitions
from registry.db import Database
from registry.models import JobLength
from registry.states import State
from tests.world import World


def test_a_claim_carries_fence_body_and_adapter(system_db: Database, world: World) -> None:
    adapter = world.adapter("acme", "tickets")
    job_id = world.job("acme", model="tickets", document="고객 문의 😀", max_tokens=7, stop="\n")
    worker = world.worker()
    [claimed] = world.claim(worker, world.pick())
    assert (claimed.job_id, claimed.fence, claimed.tenant_id, claimed.crashes) == (job_id, 1, "acme", 0)
    assert claimed.body is not None
    assert claimed.body["document"] == "고객 문의 😀"
    assert claimed.body["sampling"] == {"max_tokens": 7, "temperature": 0.0, "top_p": 1.0, "stop": ["\n"], "seed": None}
    assert claimed.adapter == transitions.ClaimedAdapter(
        adapter.adapter_id, "tickets", 1, adapter.path, adapter.digest, "ready"
    )
    assert claimed.queued_ms >= 0
    row = world.row(job_id)
    assert (row["worker"], row["fence"], row["started_at"]) == (worker, 1, None)


def test_a_job_of_the_bare_base_has_no_adapter(world: World) -> None:
    world.job()
    [claimed] = world.claim(world.worker(), world.pick())
    assert claimed.adapter is None


def test_jobs_come_in_the_order_of_their_turns(world: World) -> None:
    for tenant in ("acme", "globex", "initech"):
        for _ in range(3):
            world.job(tenant)
    picked = world.pick()
    assert [claimed.job_id for claimed in world.claim(world.worker(), picked[::-1])] == picked


def test_a_second_claim_gets_nothing(world: World) -> None:
    world.job()
    picked = world.pick()
    assert len(world.claim(world.worker(), picked)) == 1
    assert world.claim(world.worker(), picked) == []


def test_concurrent_claims_share_the_jobs_out(system_db: Database, world: World) -> None:
    for _ in range(40):
        world.job()
    picked = world.pick()
    workers = [world.worker() for _ in range(4)]
    taken: dict[uuid.UUID, set[uuid.UUID]] = {}
    gate = threading.Barrier(len(workers))

    def take(worker: uuid.UUID) -> None:
        gate.wait()
        taken[worker] = {claimed.job_id for claimed in world.claim(worker, picked)}

    threads = [threading.Thread(target=take, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(len(ids) for ids in taken.values()) == 40
    assert set().union(*taken.values()) == set(picked)


def test_every_claim_raises_the_fence(world: World, system_db: Database) -> None:
    job_id = world.job()
    worker = world.worker()
    for fence in (1, 2, 3):
        [claimed] = world.claim(worker, world.pick())
        assert claimed.fence == fence
        with system_db.transaction() as session:
            assert transitions.hand_back(session, [(job_id, fence)]) == {job_id}


def test_another_deployments_job_is_not_claimed(world: World) -> None:
    world.job()
    world.deployment("Tiny-r16", max_lora_rank=16)
    picked = world.pick()
    assert world.claim(world.worker("Tiny-r16"), picked, "Tiny-r16") == []
    assert world.state(picked[0]) == "dispatched"


@pytest.mark.parametrize("ending", ["dead", "ended"])
def test_a_worker_that_no_longer_counts_as_alive_claims_nothing(system_db: Database, world: World, ending: str) -> None:
    """Its jobs were rescued when it was declared dead; what it took afterwards nobody would take back."""
    world.job()
    worker = world.worker()
    with system_db.transaction() as session:
        presence.become(session, worker, ending)
    picked = world.pick()
    assert world.claim(worker, picked) == []
    assert world.state(picked[0]) == "dispatched"


def test_a_purged_input_is_said_to_be_gone(system_db: Database, world: World) -> None:
    world.job()
    with system_db.transaction() as session:
        session.execute(text("DELETE FROM job_inputs"))
    [claimed] = world.claim(world.worker(), world.pick())
    assert claimed.body is None


def test_start_leaves_out_jobs_that_were_cancelled_meanwhile(system_db: Database, world: World) -> None:
    kept, cancelled = world.job(), world.job()
    pairs = [(claimed.job_id, claimed.fence) for claimed in world.claim(world.worker(), world.pick())]
    with system_db.transaction() as session:
        transitions.cancel(session, "acme", cancelled)
        assert transitions.start(session, pairs) == {kept}
        assert transitions.start(session, []) == set()
    assert world.row(kept)["started_at"] is not None
    assert world.row(cancelled)["started_at"] is None
    assert world.state(cancelled) == State.CANCELLED


def test_start_keeps_why_a_job_was_admitted_and_a_claim_forgets_why_it_waited(
    system_db: Database, world: World
) -> None:
    job, other = world.job(), world.job()
    worker = world.worker()
    world.claim(worker, world.pick())
    with system_db.transaction() as session:
        explanations.keep(session, [(job, 1, "older jobs go first")])
        transitions.hand_back(session, [(job, 1)])
        transitions.start(session, [(other, 1)], ["its turn"])
    assert world.row(other)["admit_reason"] == "its turn"
    assert world.row(job)["waiting_reason"] == "older jobs go first"
    world.claim(worker, world.pick())
    assert world.row(job)["waiting_reason"] is None


def test_a_claim_says_how_much_the_adapters_recent_jobs_wrote(system_db: Database, world: World) -> None:
    adapter = world.adapter("acme", "tickets")
    known, bare = world.job("acme", model="tickets"), world.job("acme")
    with system_db.transaction() as session:
        session.add(
            JobLength(
                deployment="Tiny", tenant_id="acme", adapter_key=adapter.adapter_id, prompt_tokens=9, output_tokens=31.5
            )
        )
    claimed = {job.job_id: job.expected_output for job in world.claim(world.worker(), world.pick())}
    assert claimed == {known: 31.5, bare: None}
