"""What the planner adds to the policy: reading ahead, explanations, hand-backs, and that no defect hangs a job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.errors import EngineError
from tests.workers.planner_rig import PlannerRig, finish, until
from tests.workers.test_planner import QUICK, ends, swap_of
from workers import explainer, policy, waits
from workers.engine_work import EngineWork
from workers.fake_markers import Marker
from workers.generation import Capacity
from workers.policy import Rules
from workers.slots import Slots

Make = Any


@pytest.fixture
def make(tiny_base_dir: Path, tmp_path: Path) -> Iterator[Make]:
    made: list[PlannerRig] = []

    def build(rules: Rules = QUICK, **engine: Any) -> PlannerRig:
        made.append(PlannerRig(tiny_base_dir, tmp_path, rules, **engine))
        return made[-1]

    yield build
    for rig in made:
        rig.close()


def test_the_next_adapter_is_read_while_the_batch_runs_so_that_its_swap_stops_nobody(make: Make) -> None:
    rig = make(step_ms=20, load_ms=120, activate_ms=1)
    rig.hold(*(warm := [rig.job(1, max_tokens=1), rig.job(2, max_tokens=1)]))
    finish(*warm)
    running, short = rig.job(1, max_tokens=16), rig.job(2, max_tokens=10)
    rig.hold(running, short)
    rig.live(2)
    rig.hold(follower := rig.job(3))
    finish(running, short, follower)
    swap = swap_of(rig, follower)
    assert (swap["state"], swap["load_ms"], swap["evicted"]) == ("cold", 120, "acme/a2@1")
    assert swap_of(rig, running)["stalled_ms"] < 60, "the activation only"
    assert rig.writer.admitted[follower.job_id] == "its turn"


def test_what_nobody_waits_for_any_more_is_forgotten(make: Make) -> None:
    rig = make(Rules(8, 1, 5, 9), step_ms=50, load_ms=5)
    rig.hold(running := rig.job(1))
    rig.live(1)
    rig.hold(gone := rig.job(2))
    until(lambda: rig.planner._loader.ahead == 2)
    rig.planner.abandon([gone.job_id])
    until(lambda: rig.planner._loader.ahead is None)
    finish(gone, running)


def test_a_waiting_job_is_told_what_it_waits_for_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explainer, "EVERY_S", 0.05)
    rig = make(Rules(8, 1, 5, 9), step_ms=40)
    told: list[Any] = []
    rig.writer.explain = lambda *what: told.append(what)
    rig.hold(running := rig.job(1))
    rig.live(1)
    rig.hold(waiting := rig.job(2))
    finish(running, waiting)
    assert told == [(waiting.job_id, 1, waits.NO_SLOT)]


def test_jobs_enter_only_while_the_cache_has_room_for_their_tokens(make: Make) -> None:
    rig = make(step_ms=5, capacity=Capacity(kv_tokens=60, batched_tokens=None))
    jobs = [rig.job(1, prompt="12345678", max_tokens=16) for _ in range(6)]
    rig.hold(*jobs)
    rig.live(2)
    finish(*jobs)
    assert max(job.batch_jobs for job in jobs) == 2


def test_jobs_that_cannot_start_and_keep_others_out_are_handed_back_unharmed(make: Make) -> None:
    rig = make(Rules(8, 1, 0.05, 0.2, max_held=4), step_ms=60)
    rig.hold(running := rig.job(1))
    rig.live(1)
    waiting = [rig.job(adapter) for adapter in (2, 3, 4)]
    rig.hold(*waiting)
    finish(waiting[2])
    assert rig.writer.handed_back == {waiting[2].job_id: "nothing"}
    finish(running, *waiting)
    assert ends(rig, [running, *waiting[:2]]) == ["succeeded"] * 3


def test_the_backlogs_next_uses_decide_who_leaves(make: Make) -> None:
    rig = make()
    for adapter in (1, 2):
        rig.hold(job := rig.job(adapter))
        finish(job)
    rig.planner.foresee({1: 1})
    rig.hold(job := rig.job(3))
    finish(job)
    assert swap_of(rig, job)["evicted"] == "acme/a2@1", "longest unused would have been a1"


def test_an_adapter_that_corrupts_on_a_clean_cache_is_quarantined_and_nobody_elses(make: Make) -> None:
    rig = make(step_ms=2)
    bad, neighbour = rig.job(1, prompt=Marker.CORRUPT), rig.job(2, prompt=Marker.CORRUPT_UNTIL_SCRUB)
    rig.hold(bad, neighbour)
    finish(bad, neighbour)
    until(lambda: rig.writer.quarantined)
    assert ends(rig, [bad, neighbour]) == ["output_corrupted", "succeeded"]
    assert rig.writer.quarantined == [("acme", 1)]


def test_a_defect_in_the_policy_hands_jobs_back_and_the_planner_goes_on(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make()

    def breaks(*_: Any, **__: Any) -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as broken:
        broken.setattr(policy, "decide", breaks)
        rig.hold(job := rig.job(1))
        finish(job)
    assert rig.writer.handed_back == {job.job_id: "nothing"}
    rig.hold(after := rig.job(1))
    finish(after)
    assert ends(rig, [after]) == ["succeeded"]


@pytest.mark.parametrize("error", [KeyError("a defect"), EngineError("no slot is free")])
def test_a_swap_that_breaks_off_spends_an_attempt_and_the_planner_goes_on(
    make: Make, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    rig = make()

    async def breaks(*_: Any) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(rig.engine, "swap_in", breaks)
        first, second = rig.job(1), rig.job(2, attempts=1)
        rig.hold(first, second)
        finish(first, second)
    assert rig.writer.handed_back == {first.job_id: "attempt"}
    assert ends(rig, [second]) == ["generation_failed"], "not the adapter's fault"
    rig.hold(after := rig.job(1))
    finish(after)
    assert ends(rig, [after]) == ["succeeded"]


def test_a_difference_between_book_and_engine_is_mended_counted_and_harms_nobody(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.engine_work.AUDIT_S", 0.02)
    rig = make(step_ms=30)
    rig.hold(first := rig.job(1), bystander := rig.job(2))
    rig.live(2)
    rig.engine._run.slots.pop(1)  # the engine lost it
    finish(first)
    assert rig.writer.handed_back == {first.job_id: "nothing"}
    until(lambda: rig.planner.report().residency["differences"] == 1)
    rig.hold(again := rig.job(1))
    finish(bystander, again)
    assert ends(rig, [bystander, again]) == ["succeeded"] * 2


def test_a_request_that_the_engine_refuses_against_our_books_leads_to_an_audit(make: Make) -> None:
    rig = make(step_ms=2)
    rig.hold(first := rig.job(1))
    finish(first)

    async def lose() -> None:
        rig.engine._run.slots.pop(1)
        rig.engine._run.guard.slots_are(rig.engine._run.slots)

    asyncio.run_coroutine_threadsafe(lose(), rig.engine.loop).result(5)
    rig.hold(second := rig.job(1))
    finish(second)
    assert rig.writer.handed_back == {second.job_id: "attempt"}
    until(lambda: rig.planner.report().residency["differences"] == 1)
    rig.hold(third := rig.job(1))
    finish(third)
    assert ends(rig, [third]) == ["succeeded"]


def test_a_job_that_leaves_a_slot_unknown_to_the_book_still_ends(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make()
    release = Slots.release
    broken = iter([True])

    def breaks(self: Slots, adapter: int, now_s: float) -> None:
        release(self, adapter, now_s)
        if next(broken, False):
            raise KeyError(adapter)

    monkeypatch.setattr(Slots, "release", breaks)
    rig.hold(job := rig.job(1))
    finish(job)
    assert ends(rig, [job]) == ["succeeded"]


def test_a_defect_in_the_work_on_the_engine_does_not_stop_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make()
    compare = EngineWork._compare
    broken = iter([True])

    async def breaks(self: EngineWork, found: Any) -> None:
        if next(broken, False):
            raise ValueError("a defect")
        await compare(self, found)

    monkeypatch.setattr(EngineWork, "_compare", breaks)
    jobs = [rig.job(adapter) for adapter in (1, 2, 3)]
    rig.hold(*jobs)
    finish(*jobs)
    assert ends(rig, jobs) == ["succeeded"] * 3
