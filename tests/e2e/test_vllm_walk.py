"""The whole walk with the real engine: one worker start, several tenants, swaps, a death."""

from __future__ import annotations

import uuid
from pathlib import Path

import psutil
import pytest

from tests.e2e.crew import Crew, Member, eventually
from tests.e2e.submitted import swap_of
from tests.tiny_model import BASE_NAME, make_adapter, make_tiny_model
from tests.world import World

TENANTS = ("acme", "globex", "initech")
KOREAN = "고객이 주문 48213 상품이 파손되어 도착했다고 알립니다 🙏 환불을 요청해요 👩🏽‍🚒"
LENGTH = 80
"""Output tokens of a job: enough that some still run when the worker is killed."""

pytestmark = [pytest.mark.engine, pytest.mark.timeout(240)]


def onboard(world: World, scratch: Path) -> None:
    """One base with two slots, and an adapter for each of three tenants."""
    model = make_tiny_model(scratch / "model")
    world.base(
        "Tiny",
        model,
        aliases=(BASE_NAME,),
        dtype="float32",
        max_model_len=256,
        max_num_seqs=8,
        max_loras=2,
        max_lora_rank=8,
        max_cpu_loras=4,
    )
    for seed, tenant in enumerate(TENANTS):
        world.adapter_from(make_adapter(scratch / tenant, seed=seed), tenant)


def real_worker(crew: Crew) -> Member:
    return crew.worker(LORRY_ENGINE="vllm", LORRY_KV_CACHE_GIB="0.25")


def family(member: Member) -> set[int]:
    """The worker's process and everything below it: vLLM's too."""
    return {member.pid, *(child.pid for child in psutil.Process(member.pid).children(recursive=True))}


def test_mixed_tenants_swap_survive_a_kill_and_keep_their_own_answers(crew: Crew, world: World, tmp_path: Path) -> None:
    onboard(world, tmp_path)
    crew.dispatcher()
    first = real_worker(crew)
    probes = {tenant: world.job(tenant, model="tickets", document=KOREAN, max_tokens=LENGTH) for tenant in TENANTS}
    probes["base"] = world.job("acme", model="Tiny", document=KOREAN, max_tokens=LENGTH)
    crew.finished(4)
    answers = {name: crew.outputs()[job] for name, job in probes.items()}
    assert len(set(answers.values())) == 4, "each adapter and the base must answer in its own way"
    states = [swap_of(job)["state"] for job in crew.jobs() if job.adapter_id]
    assert states == ["cold"] * 3

    again: dict[uuid.UUID, str] = {}
    for number in range(30):
        name = (*TENANTS, "base")[number % 4]
        tenant, model = (name, "tickets") if name != "base" else ("acme", "Tiny")
        again[world.job(tenant, model=model, document=KOREAN, max_tokens=LENGTH)] = name
    eventually(lambda: crew.states().get("running"), every_s=0.01)
    born = family(first)
    first.kill()
    eventually(lambda: not any(psutil.pid_exists(pid) for pid in born), within_s=15)
    assert crew.states().get("running"), "the kill came too late to meet a running job"
    real_worker(crew)
    crew.finished(34, within_s=120)
    texts = crew.outputs()
    assert {texts[job] == answers[name] for job, name in again.items()} == {True}
    swaps = [swap_of(job) for job in crew.jobs() if job.adapter_id]
    assert all(swap["load_ms"] == 0 and swap["activate_ms"] > 0 for swap in swaps if swap["state"] == "warm")
