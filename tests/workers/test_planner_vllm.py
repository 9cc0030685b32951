"""The planner on the real engine: a storm of jobs, swaps, readings ahead and cancels, and every answer its own."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from registry import adapter_files
from registry.store import Store
from tests.workers.engine_rig import MAX_LORAS, Rig
from tests.workers.held_jobs import held_job
from tests.workers.planner_rig import RecordingWriter, until
from workers.generation import AdapterRef
from workers.held import HeldJob
from workers.planner import Planner
from workers.policy import Rules

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]
ADAPTERS, ROUNDS, TOKENS = 6, 8, 12
WITHIN_S = 120


def job_of(rig: Rig, ref: AdapterRef | None, turn: int, prompt: int | None = None) -> HeldJob:
    if ref is None:
        job = held_job(turn=turn)
    else:
        job = held_job(ref.int_id, turn, path=ref.path, digest=adapter_files.digest(Path(ref.path)))
    words = f"Order {turn % 4 if prompt is None else prompt} arrived damaged."
    job.generation = rig.generation(ref, max_tokens=TOKENS + turn % 5, prompt=words)
    return job


async def empty(rig: Rig) -> None:
    """No adapter in a slot."""
    for int_id in (await rig.engine.residency()).slots:
        await rig.engine._rpc("lorry_forget", int_id)  # type: ignore[union-attr]
    await rig.engine.residency()


async def alone(rig: Rig, job: HeldJob) -> str:
    """The same request with nothing beside it."""
    if job.generation.adapter is not None:
        await rig.load(job.generation.adapter)
    return str((await rig.engine.generate(job.generation)).text)


def planner_on(rig: Rig, store: Path, writer: RecordingWriter) -> Planner:
    rig.run(empty(rig))
    return Planner(rig.engine, Rules(8, MAX_LORAS, 0.1, 0.3), Store(store), writer, lambda: None)  # type: ignore[arg-type]


def test_in_a_storm_every_answer_is_its_adapters_own_and_no_step_loads(vllm_rig: Rig, tmp_path: Path) -> None:
    rig, writer = vllm_rig, RecordingWriter()
    planner = planner_on(rig, tmp_path, writer)
    refs = [None, *(rig.adapter() for _ in range(ADAPTERS))]
    jobs = [job_of(rig, ref, turn) for turn, ref in enumerate(refs * ROUNDS, start=1)]
    doomed = jobs[3::5]
    for job in jobs:
        planner.hold(job)
    until(lambda: planner.report().live > 2)
    for job in doomed:
        planner.abandon([job.job_id])
    for job in jobs:
        job.done.result(WITHIN_S)
    report = planner.report()
    planner.drain(0)

    assert (report.residency["step_time_loads"], report.residency["differences"]) == (0, 0)
    assert writer.handed_back == {}
    kept = [job for job in jobs if job not in doomed]
    assert {writer.outcomes[job.job_id].state for job in kept} == {"succeeded"}
    for job in kept[::3]:
        assert writer.outcomes[job.job_id].text == rig.run(alone(rig, job))


def test_bad_neighbours_change_no_token_of_anybody_else(vllm_rig: Rig, tmp_path: Path) -> None:
    """12 prompts x (4 adapters + the base) beside NaN weights, a load that fails, files that vanish, and cancels."""
    rig, writer = vllm_rig, RecordingWriter()
    planner = planner_on(rig, tmp_path, writer)
    sound = [None, *(rig.adapter() for _ in range(4))]
    poisoned, refused, vanishing = rig.adapter(strength=float("nan")), rig.adapter(rank=16), rig.adapter()
    turns = itertools.count(1)
    jobs, bad, doomed = [], [], []
    for prompt in range(12):
        jobs += [job_of(rig, ref, next(turns), prompt) for ref in sound]
        bad += [job_of(rig, ref, next(turns), prompt) for ref in (poisoned, refused, vanishing)][prompt % 2 :]
        doomed.append(job_of(rig, sound[1 + prompt % 4], next(turns), prompt))
    for job in sorted([*jobs, *bad, *doomed], key=lambda job: job.claimed.turn):
        planner.hold(job)
    until(lambda: planner.report().live > 2)
    shutil.rmtree(vanishing.path)
    planner.abandon([job.job_id for job in doomed])
    for job in [*jobs, *bad, *doomed]:
        job.done.result(WITHIN_S)
    report = planner.report()
    planner.drain(0)

    assert (report.residency["step_time_loads"], report.residency["differences"]) == (0, 0)
    assert {writer.outcomes[job.job_id].state for job in jobs} == {"succeeded"}
    for job in jobs:
        assert writer.outcomes[job.job_id].text == rig.run(alone(rig, job))
    assert writer.quarantined == [("acme", poisoned.int_id)]
    assert {adapter_id for _, adapter_id, _ in writer.blamed} == {refused.int_id}
    ends = {job.adapter_id: set[str | None]() for job in bad}
    for job in bad:
        if job.job_id in writer.outcomes:  # the quarantine itself ends the others of the poisoned adapter
            ends[job.adapter_id].add(writer.outcomes[job.job_id].error_code)
    assert ends[poisoned.int_id] <= {"output_corrupted"}
    assert ends[refused.int_id] == {"adapter_load_failed"}
    assert ends[vanishing.int_id] <= {None, "adapter_files_lost"}
