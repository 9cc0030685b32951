"""A worker with the real engine: its engine's process is killed, then the worker is told to stop."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.crew import Crew, eventually
from tests.tiny_model import BASE_NAME, make_adapter, make_tiny_model
from tests.world import World

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def test_a_killed_engine_is_started_again_and_sigterm_leaves_nothing_behind(
    crew: Crew, world: World, tmp_path: Path
) -> None:
    model = make_tiny_model(tmp_path / "model")
    world.base("Tiny", model, aliases=(BASE_NAME,), dtype="float32", max_model_len=256, max_loras=2, max_lora_rank=8)
    world.adapter_from(make_adapter(tmp_path / "acme", seed=1), "acme")
    crew.dispatcher()
    worker = crew.worker(wait=False, LORRY_ENGINE="vllm", LORRY_KV_CACHE_GIB="0.25")
    eventually(lambda: crew.is_ready(worker), within_s=150)
    jobs = [world.job("acme", model="tickets", max_tokens=100) for _ in range(40)]
    eventually(lambda: any(job.started_at for job in crew.jobs()))
    (engine,) = [child for child in psutil.Process(worker.pid).children() if "EngineCore" in " ".join(child.cmdline())]
    engine.kill()
    crew.finished(len(jobs), within_s=120)
    assert {job.attempts for job in crew.jobs()} == {0}
    assert {job.crashes for job in crew.jobs()} == {0, 1}, "those that were in the engine, and no others"
    assert any(job.fence > 1 for job in crew.jobs()), "the kill came too late to prove anything"
    family = psutil.Process(worker.pid).children(recursive=True)
    logged = worker.log.stat().st_size
    begun_s = time.monotonic()
    worker.terminate()
    assert worker.exit_code(within_s=30) == 0
    assert time.monotonic() - begun_s < 30
    assert crew.worker_row(worker)["state"] == "ended"
    eventually(lambda: not any(child.is_running() for child in family), within_s=5)
    assert b"Traceback" not in worker.log.read_bytes()[logged:]
