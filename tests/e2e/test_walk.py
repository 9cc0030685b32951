"""Jobs through dispatcher, queue, worker and back, with the engine that has no model."""

from __future__ import annotations

from registry import transitions
from registry.states import State
from tests.e2e.crew import Crew, eventually
from tests.e2e.submitted import swap_of
from tests.world import World


def test_jobs_of_many_tenants_and_adapters_all_finish_once(crew: Crew, world: World) -> None:
    tenants = ("acme", "globex", "initech")
    for tenant in tenants:
        world.adapter(tenant)
    jobs = [world.job(tenant, model="tickets") for _ in range(20) for tenant in tenants]
    crew.dispatcher()
    crew.worker()
    crew.finished(len(jobs))
    assert set(crew.outputs()) == set(jobs)
    assert all(job.fence == 1 and job.timing and job.timing["total_ms"] > 0 for job in crew.jobs())


def test_one_adapter_gives_one_answer_and_another_adapter_another(crew: Crew, world: World) -> None:
    world.adapter("acme")
    world.adapter("globex")
    same = [world.job("acme", model="tickets", document="요약해줘 🙂") for _ in range(3)]
    other = world.job("globex", model="tickets", document="요약해줘 🙂")
    crew.dispatcher()
    crew.worker()
    crew.finished(4)
    texts = crew.outputs()
    assert len({texts[job] for job in same}) == 1
    assert texts[other] != texts[same[0]]


def test_the_first_job_of_an_adapter_is_cold_and_the_next_one_hot(crew: Crew, world: World) -> None:
    world.adapter("acme")
    first = world.job("acme", model="tickets")
    crew.dispatcher()
    crew.worker()
    crew.finished(1)
    second = world.job("acme", model="tickets")
    crew.finished(2)
    swaps = {job.id: swap_of(job) for job in crew.jobs()}
    assert (swaps[first]["state"], swaps[first]["shared_by"]) == ("cold", 1)
    assert swaps[second]["state"] == "hot"


def test_a_cancelled_running_job_frees_the_engine(crew: Crew, world: World) -> None:
    world.adapter("acme")
    slow = world.job("acme", model="tickets", max_tokens=100)
    crew.dispatcher()
    worker = crew.worker(LORRY_FAKE_STEP_MS="5000")
    eventually(lambda: crew.jobs()[0].started_at is not None)
    with crew.db.transaction() as session:
        assert transitions.cancel(session, "acme", slow)
    eventually(lambda: crew.worker_row(worker)["live"] == 0 and crew.worker_row(worker)["held"] == 0, within_s=5)
    assert crew.states() == {State.CANCELLED: 1}


def test_a_prompt_that_does_not_fit_fails_by_its_code_and_harms_nobody(crew: Crew, world: World) -> None:
    world.adapter("acme")
    long = world.job("acme", model="tickets", document="x" * 5000)
    short = world.job("acme", model="tickets")
    crew.dispatcher()
    crew.worker()
    eventually(lambda: crew.states() == {"failed": 1, "succeeded": 1})
    ended = {job.id: job.error_code for job in crew.jobs()}
    assert ended == {long: "prompt_too_long", short: None}
