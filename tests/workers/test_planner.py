"""The planner on the fake engine: who is admitted with what, and how every job ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.workers.planner_rig import PlannerRig, finish
from workers.fake_markers import LOAD_FAILS_KEY, digest
from workers.held import HeldJob
from workers.policy import Rules

Make = Callable[..., PlannerRig]
QUICK = Rules(max_live=8, max_loras=2, grouping_max_wait_s=0.05, adapter_max_wait_s=0.2)


@pytest.fixture
def make(tiny_base_dir: Path, tmp_path: Path) -> Iterator[Make]:
    made: list[PlannerRig] = []

    def build(rules: Rules = QUICK, **engine: Any) -> PlannerRig:
        made.append(PlannerRig(tiny_base_dir, tmp_path, rules, **engine))
        return made[-1]

    yield build
    for rig in made:
        rig.close()


def swap_of(rig: PlannerRig, job: HeldJob) -> dict[str, Any]:
    timing = rig.writer.outcomes[job.job_id].timing
    assert timing is not None
    swap: dict[str, Any] = timing["swap"]
    return swap


def ends(rig: PlannerRig, jobs: list[HeldJob]) -> list[str | None]:
    """Each job's end: its state, or the code it failed with."""
    outcomes = [rig.writer.outcomes[job.job_id] for job in jobs]
    return [outcome.error_code or outcome.state for outcome in outcomes]


def test_every_job_of_a_mixture_is_answered_by_its_own_adapter_or_the_base(make: Make) -> None:
    rig = make(step_ms=1)
    jobs = [rig.job(adapter, prompt=f"p{n}") for n in range(10) for adapter in (0, 1, 2, 3, 4)]
    rig.hold(*jobs)
    finish(*jobs)
    answers = {job.job_id: rig.writer.outcomes[job.job_id].text for job in jobs}
    assert answers == {job.job_id: digest(job.generation) for job in jobs}
    assert rig.planner.report().live == rig.planner.report().held == 0


def test_jobs_that_wait_for_one_swap_share_it_and_later_ones_are_hot(make: Make) -> None:
    rig = make(load_ms=30, activate_ms=5)
    waiting = [rig.job(1) for _ in range(3)]
    rig.hold(*waiting)
    finish(*waiting)
    later = rig.job(1)
    rig.hold(later)
    finish(later)
    for job in waiting:
        swap = swap_of(rig, job)
        assert (swap["state"], swap["shared_by"], swap["load_ms"], swap["activate_ms"]) == ("cold", 3, 30, 5)
        assert 35 <= swap["wait_ms"] < 5000
    assert sum(rig.writer.outcomes[job.job_id].swap_ms for job in waiting) >= 35
    assert swap_of(rig, later) == {"state": "hot", "stalled_ms": 0}
    assert rig.writer.outcomes[later.job_id].swap_ms == 0


def test_a_swap_names_whom_it_evicted_and_a_host_copy_makes_the_way_back_warm(make: Make) -> None:
    rig = make()
    for adapter in (1, 2, 3):
        job = rig.job(adapter)
        rig.hold(job)
        finish(job)
    assert swap_of(rig, job)["evicted"] == "acme/a1@1"
    back = rig.job(1)
    rig.hold(back)
    finish(back)
    assert (swap_of(rig, back)["state"], swap_of(rig, back)["evicted"]) == ("warm", "acme/a2@1")


def test_a_running_job_is_told_how_long_the_loads_of_others_stopped_it(make: Make) -> None:
    rig = make(step_ms=20, load_ms=60, activate_ms=10)
    running, other = rig.job(1), rig.job(2)
    rig.hold(running)
    rig.live(1)
    rig.hold(other)
    finish(running, other)
    assert swap_of(rig, running)["stalled_ms"] >= 69
    assert swap_of(rig, other)["stalled_ms"] == 0


def test_a_failed_load_fails_that_adapters_jobs_only(make: Make) -> None:
    rig = make()
    bad = [rig.job(1), rig.job(1)]
    good = [rig.job(2), rig.job(0)]
    config = rig.folder(1) / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {LOAD_FAILS_KEY: True}))
    rig.hold(*bad, *good)
    finish(*bad, *good)
    assert ends(rig, bad + good) == ["adapter_load_failed"] * 2 + ["succeeded"] * 2
    message = rig.writer.outcomes[bad[0].job_id].error_message
    assert message is not None
    assert str(rig.folder(1)) not in message


def test_files_that_changed_since_they_were_registered_are_never_loaded(make: Make) -> None:
    rig = make()
    job = rig.job(1)
    weights = rig.folder(1) / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    rig.hold(job)
    finish(job)
    assert ends(rig, [job]) == ["adapter_load_failed"]
    assert rig.planner.report().residency["slots"] == []


def test_abandoned_jobs_leave_the_engine_and_nothing_is_written(make: Make) -> None:
    rig = make(Rules(1, 2, 0.05, 0.2), step_ms=5000)
    live, waiting = rig.job(1), rig.job(1)
    rig.hold(live, waiting)
    rig.live(1)
    assert rig.planner.held_ids() == {live.job_id, waiting.job_id}
    rig.planner.abandon([live.job_id, waiting.job_id])
    finish(live, waiting)
    assert rig.planner.held_ids() == set()
    assert (rig.writer.outcomes, rig.writer.handed_back) == ({}, {})


def test_a_job_abandoned_in_the_turn_of_the_loop_that_admits_it_ends_too(make: Make) -> None:
    """Its run is then cancelled before its first step."""
    rig = make()
    job = rig.job()
    # The stop is in the loop's queue before the first step of the run is.
    rig.hold_abandoned(job)
    finish(job)
    assert (rig.planner.report().live, rig.planner.held_ids()) == (0, set())


def test_a_job_that_the_registry_will_not_start_is_not_run(make: Make) -> None:
    rig = make()
    job = rig.job()
    rig.writer.gone.add(job.job_id)
    rig.hold(job)
    finish(job)
    assert (rig.writer.outcomes, rig.writer.handed_back) == ({}, {})


def test_nobody_takes_a_slot_while_an_aborted_request_is_in_its_last_step(make: Make) -> None:
    rig = make(Rules(8, 1, 0.05, 0.2), step_ms=300)
    doomed = rig.job(1)
    rig.hold(doomed)
    rig.live(1)
    rig.planner.abandon([doomed.job_id])
    finish(doomed)
    begun_s = time.monotonic()
    other = rig.job(2, max_tokens=1)
    rig.hold(other)
    finish(other)
    assert ends(rig, [other]) == ["succeeded"]
    assert swap_of(rig, other)["wait_ms"] > 200, "the swap waited for the engine's word"
    assert time.monotonic() - begun_s < 5


def test_a_stream_on_every_slot_gives_way_to_who_has_waited(make: Make) -> None:
    """Two adapters with endless work, ten tokens a job; the third waits no longer than its bound."""
    rig = make(step_ms=4)
    streams = [rig.job(1 + n % 2, max_tokens=10) for n in range(300)]
    rig.hold(*streams)
    rig.live(8)
    probe = rig.job(3, max_tokens=1)
    rig.hold(probe)
    begun_s = time.monotonic()
    finish(probe)
    waited_s = time.monotonic() - begun_s
    assert rig.planner.report().held > 50, "the streams are still there"
    assert waited_s < 0.2 + 0.05 + 0.5, waited_s
    rig.planner.abandon([job.job_id for job in streams])


def test_a_drain_hands_back_what_waits_and_lets_live_jobs_finish(make: Make) -> None:
    rig = make(Rules(1, 2, 0.05, 0.2), step_ms=10)
    live, waiting = rig.job(1), rig.job(1)
    rig.hold(live, waiting)
    rig.live(1)
    rig.planner.drain(grace_s=5)
    late = rig.job(1)
    rig.hold(late)
    finish(live, waiting, late)
    assert ends(rig, [live]) == ["succeeded"]
    assert rig.writer.handed_back == {waiting.job_id: "nothing", late.job_id: "nothing"}


def test_a_drain_hands_back_live_jobs_when_the_grace_is_over(make: Make) -> None:
    rig = make(step_ms=5000)
    live = rig.job(1)
    rig.hold(live)
    rig.live(1)
    rig.planner.drain(grace_s=0.05)
    finish(live)
    assert rig.writer.handed_back == {live.job_id: "nothing"}


def test_a_result_that_the_registry_refuses_spends_an_attempt_then_fails(make: Make) -> None:
    rig = make()
    first, second = rig.job(), rig.job(attempts=1)
    rig.writer.refused = {first.job_id, second.job_id}
    rig.hold(first, second)
    finish(first, second)
    assert rig.writer.handed_back == {first.job_id: "attempt"}
    assert ends(rig, [second]) == ["generation_failed"]


def test_an_unforeseen_error_ends_its_job_and_frees_its_place(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make()
    job = rig.job(1, attempts=1)

    async def breaks(_generation: object) -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr(rig.engine, "generate", breaks)
        rig.hold(job)
        finish(job)
    assert ends(rig, [job]) == ["generation_failed"]
    after = rig.job(1)
    rig.hold(after)
    finish(after)
    assert ends(rig, [after]) == ["succeeded"]


def test_a_job_stopped_before_its_start_was_written_frees_its_place(make: Make) -> None:
    rig = make()
    rig.writer.starts_wait = never = Future[bool]()
    job = rig.job(1)
    rig.hold(job)
    rig.live(1)
    rig.planner.abandon([job.job_id])
    finish(job)
    assert never.cancelled()
    assert rig.planner.report().live == 0
