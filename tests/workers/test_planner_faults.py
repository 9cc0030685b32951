"""What the planner does when the engine dies, loses a request, or answers with corrupted output."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from registry.errors import EngineError
from registry.transitions import ALONE_CRASHES
from tests.workers.planner_rig import PlannerRig, finish
from tests.workers.test_planner import QUICK, ends
from workers.fake_markers import Marker
from workers.policy import Rules


@pytest.fixture
def rig(tiny_base_dir: Path, tmp_path: Path) -> Iterator[PlannerRig]:
    made = PlannerRig(tiny_base_dir, tmp_path, QUICK, step_ms=5)
    yield made
    made.close()


def restart(rig: PlannerRig) -> None:
    """What the worker does after `on_dead`."""
    assert rig.died.wait(5)
    rig.engine.close()
    rig.engine.start()
    rig.planner.resume()


def test_a_dead_engine_hands_back_every_job_and_suspects_those_that_were_in_it(rig: PlannerRig) -> None:
    jobs = [rig.job(adapter) for adapter in (1, 2, 3, 0) for _ in range(5)]
    rig.hold(*jobs)
    rig.live(8)
    killer = rig.job(0, prompt=Marker.DEATH, max_tokens=3)
    killer.claimed = replace(killer.claimed, turn=0)
    rig.hold(killer)
    finish(*jobs, killer)
    ended = rig.writer.handed_back | dict.fromkeys(rig.writer.outcomes, "nothing")
    assert set(ended) == {job.job_id for job in [*jobs, killer]}
    assert set(rig.writer.handed_back.values()) <= {"nothing", "crash"}, "no attempt is spent"
    assert rig.writer.handed_back[killer.job_id] == "crash"
    assert rig.died.is_set()
    assert {outcome.state for outcome in rig.writer.outcomes.values()} <= {"succeeded"}


def test_jobs_that_come_while_the_engine_is_away_are_handed_back_at_once(rig: PlannerRig) -> None:
    """Others have engines that run, and starting this one takes its time."""
    killer = rig.job(0, prompt=Marker.DEATH)
    rig.hold(killer)
    finish(killer)
    early, later = rig.job(1), rig.job(1)
    rig.hold(early)
    finish(early)
    assert rig.writer.handed_back[early.job_id] == "nothing"
    restart(rig)
    rig.hold(later)
    finish(later)
    assert ends(rig, [later]) == ["succeeded"]
    assert rig.planner.report().residency["slots"] == [1]


def test_a_job_between_its_start_and_the_engine_does_not_meet_the_next_engine(rig: PlannerRig) -> None:
    """Its adapter is in no slot there: it is handed back, not failed."""
    warm = rig.job(1)
    rig.hold(warm)
    finish(warm)
    rig.writer.starts_wait = pending = Future[bool]()
    caught = rig.job(1)
    rig.hold(caught)
    rig.live(1)
    rig.writer.starts_wait = None
    killer = rig.job(0, prompt=Marker.DEATH)
    rig.hold(killer)
    restart(rig)
    if not pending.cancelled():
        pending.set_result(True)
    finish(caught)
    assert rig.writer.handed_back == {killer.job_id: "crash", caught.job_id: "crash"}


def test_a_swap_begun_in_the_turn_of_the_loop_that_meets_the_engines_death_keeps_nothing_busy(rig: PlannerRig) -> None:
    caught, later = rig.job(1), rig.job(2)

    def begin_and_die() -> None:
        rig.planner._add(caught)
        rig.planner.engine_died()

    rig.engine.loop.call_soon_threadsafe(begin_and_die)
    finish(caught)
    restart(rig)
    rig.hold(later)
    finish(later)
    assert ends(rig, [later]) == ["succeeded"]


def test_a_drain_of_a_dead_engine_hands_back_what_came_meanwhile(rig: PlannerRig) -> None:
    killer = rig.job(0, prompt=Marker.DEATH)
    rig.hold(killer)
    finish(killer)
    late = rig.job(1)
    rig.hold(late)
    rig.planner.drain(0)
    finish(late)
    assert rig.writer.handed_back == {killer.job_id: "crash", late.job_id: "nothing"}


def test_a_lost_request_spends_an_attempt_and_a_second_loss_fails(rig: PlannerRig) -> None:
    first, again = rig.job(1, prompt=Marker.FAIL), rig.job(1, prompt=Marker.FAIL, attempts=1)
    other = rig.job(1)
    rig.hold(first, again, other)
    finish(first, again, other)
    assert rig.writer.handed_back == {first.job_id: "attempt"}
    assert ends(rig, [again, other]) == ["generation_failed", "succeeded"]


def test_corrupted_output_is_withheld_and_the_job_runs_again_alone_on_a_scrubbed_cache(rig: PlannerRig) -> None:
    flagged = [rig.job(1, prompt=Marker.CORRUPT_UNTIL_SCRUB + str(n)) for n in range(2)]
    others = [rig.job(2, max_tokens=16) for _ in range(6)]
    rig.hold(*flagged, *others)
    finish(*flagged, *others)
    assert ends(rig, flagged + others) == ["succeeded"] * 8
    assert [rig.writer.started.count(job.job_id) for job in flagged + others] == [2, 2, 1, 1, 1, 1, 1, 1]
    assert [job.batch_jobs for job in flagged] == [1, 1], "alone the second time"


def test_an_adapter_that_corrupts_again_on_a_clean_cache_fails_its_job(rig: PlannerRig) -> None:
    bad, good = rig.job(1, prompt=Marker.CORRUPT), rig.job(2)
    rig.hold(bad, good)
    finish(bad, good)
    assert ends(rig, [bad, good]) == ["output_corrupted", "succeeded"]
    assert rig.writer.outcomes[bad.job_id].text is None


def test_a_corrupted_job_is_handed_back_when_the_worker_drains(rig: PlannerRig) -> None:
    bad = rig.job(1, prompt=Marker.CORRUPT)
    rig.hold(bad)
    rig.live(1)
    rig.planner.drain(grace_s=5)
    finish(bad)
    assert rig.writer.handed_back == {bad.job_id: "nothing"}


def test_a_scrub_that_comes_too_early_is_tried_again(rig: PlannerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    scrub, calls = rig.engine.scrub, []

    async def busy_at_first() -> None:
        calls.append(1)
        if len(calls) < 3:
            raise EngineError("some request still holds blocks")
        await scrub()

    monkeypatch.setattr(rig.engine, "scrub", busy_at_first)
    job = rig.job(1, prompt=Marker.CORRUPT_UNTIL_SCRUB)
    rig.hold(job)
    finish(job)
    assert ends(rig, [job]) == ["succeeded"]
    assert len(calls) == 4, "twice too early, then once for all, and once more before it runs alone"


def test_a_job_that_was_in_the_engine_at_two_deaths_runs_with_nobody_beside_it(
    tiny_base_dir: Path, tmp_path: Path
) -> None:
    rig = PlannerRig(tiny_base_dir, tmp_path, Rules(8, 1, 0.05, 0.2), step_ms=2)
    before = [rig.job(adapter) for adapter in (1, 2) for _ in range(4)]
    suspect = rig.job(1, crashes=ALONE_CRASHES)
    after = [rig.job(adapter) for adapter in (1, 2, 3) for _ in range(4)]
    rig.hold(*before, suspect, *after)
    finish(*before, suspect, *after)
    rig.close()
    assert suspect.batch_jobs == 1
    assert max(job.batch_jobs for job in before + after) > 1
    assert set(ends(rig, [*before, suspect, *after])) == {"succeeded"}
