"""The planner on the real engine: a storm of jobs, swaps, readings ahead and cancels, and every answer its own."""

from __future__ import annotations

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


def job_of(rig: Rig, ref: AdapterRef | None, turn: int) -> HeldJob:
    if ref is None:
        job = held_job(turn=turn)
    else:
        job = held_job(ref.int_id, turn, path=ref.path, digest=adapter_files.digest(Path(ref.path)))
    job.generation = rig.generation(ref, max_tokens=TOKENS + turn % 5, prompt=f"Order {turn % 4} arrived damaged.")
    return job


def test_in_a_storm_every_answer_is_its_adapters_own_and_no_step_loads(vllm_rig: Rig, tmp_path: Path) -> None:
    rig, writer = vllm_rig, RecordingWriter()

    async def empty() -> None:
        for int_id in (await rig.engine.residency()).slots:
            await rig.engine._rpc("lorry_forget", int_id)  # type: ignore[union-attr]
        await rig.engine.residency()

    rig.run(empty())
    rules = Rules(8, MAX_LORAS, 0.1, 0.3)
    planner = Planner(rig.engine, rules, Store(tmp_path), writer, lambda: None)  # type: ignore[arg-type]
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

    async def alone(job: HeldJob) -> str:
        if job.generation.adapter is not None:
            await rig.load(job.generation.adapter)
        return (await rig.engine.generate(job.generation)).text

    for job in kept[::3]:
        assert writer.outcomes[job.job_id].text == rig.run(alone(job))
