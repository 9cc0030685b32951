"""Deployments: settings that vLLM accepts, one device's arithmetic, and which rank class serves a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry import deployments, devices
from registry.deployments import EngineSettings
from registry.errors import ConfigurationError, Conflict, InvalidField, NotFound
from registry.models import Deployment
from registry.models.bases import RANK_CEILINGS
from tests.world import World


@pytest.mark.parametrize("rank", RANK_CEILINGS)
def test_every_rank_ceiling_of_vllm_is_taken(rank: int) -> None:
    EngineSettings(max_lora_rank=rank).check()


@pytest.mark.parametrize("rank", [0, 2, 4, 12, 24, 48, 96, 200, 513, 1024, -8])
def test_other_rank_ceilings_are_refused_with_the_list(rank: int) -> None:
    with pytest.raises(InvalidField, match="1, 8, 16, 32, 64, 128, 256, 320, 512"):
        EngineSettings(max_lora_rank=rank).check()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"dtype": "int8"}, "dtype"),
        ({"max_loras": 0}, "max_loras"),
        ({"max_loras": 9, "max_cpu_loras": 8}, "max_loras"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_model_len": 15}, "max_num_seqs"),
        ({"gpu_memory_utilization": 0.0}, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": 1.01}, "gpu_memory_utilization"),
        ({"gpu_memory_utilization": float("nan")}, "gpu_memory_utilization"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size"),
    ],
)
def test_settings_that_cannot_serve_are_refused_by_name(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidField) as caught:
        replace(EngineSettings(), **wrong).check()
    assert caught.value.param == field
    assert field in str(caught.value)


def test_a_base_has_one_default_deployment_and_names_are_given_once(world: World) -> None:
    world.base("Tiny")
    with pytest.raises(Conflict, match="'Tiny' exists already"):
        add(world, "Tiny", is_default=False)
    with pytest.raises(Conflict, match="has a default one"):
        add(world, "Second", is_default=True)
    add(world, "Second", is_default=False)
    with world.db.transaction() as session:
        assert deployments.names(session) == ["Second", "Tiny"]
        assert deployments.get(session, "Second").base_model == "Tiny"
        with pytest.raises(NotFound, match="lorry bases list"):
            deployments.get(session, "Third")


def test_a_job_runs_on_the_bases_own_deployment_or_the_lowest_rank_class_that_takes_it(world: World) -> None:
    world.base("Tiny", max_lora_rank=8)
    world.deployment("Tiny-r64", max_lora_rank=64)
    world.deployment("Tiny-r16", max_lora_rank=16)
    world.base("Other", max_lora_rank=512)
    with world.db.transaction() as session:
        chosen = {rank: deployments.serving(session, "Tiny", rank).name for rank in (1, 8, 9, 16, 17, 64)}
        assert deployments.rank_ceiling(session, "Tiny") == 64
        with pytest.raises(ConfigurationError, match="rank 65"):
            deployments.serving(session, "Tiny", 65)
    assert chosen == {1: "Tiny", 8: "Tiny", 9: "Tiny-r16", 16: "Tiny-r16", 17: "Tiny-r64", 64: "Tiny-r64"}


def test_a_base_without_deployment_has_no_rank_ceiling(world: World) -> None:
    with world.db.transaction() as session, pytest.raises(NotFound, match="has no deployment"):
        deployments.rank_ceiling(session, "Tiny")


def test_two_shares_that_do_not_fit_one_gpu_are_refused_with_the_arithmetic(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(devices, "NVIDIA", tmp_path / "nvidiactl")
    world.base("Tiny", gpu_memory_utilization=0.6)
    with pytest.raises(ConfigurationError) as caught:
        world.deployment("Tiny-r16", max_lora_rank=16, gpu_memory_utilization=0.5)
    assert "device 0: 0.60 (Tiny) + 0.50 (Tiny-r16) = 1.10, more than 1.00" in str(caught.value)
    world.deployment("Tiny-r16", max_lora_rank=16, gpu_memory_utilization=0.5, device="1")
    world.deployment("Tiny-r32", max_lora_rank=32, gpu_memory_utilization=0.4)


@pytest.mark.parametrize(("device", "places"), [("nvidiactl", 256), ("nothing", 64)])
def test_a_gpus_running_batch_has_more_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, places: int
) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(devices, "NVIDIA", tmp_path / device)
    assert EngineSettings().max_num_seqs == places


def test_without_a_gpu_all_deployments_share_the_machines_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "NVIDIA", Path("/nonexistent"))
    world.base("Tiny")
    with pytest.raises(ConfigurationError) as caught:
        add(world, "Huge", is_default=False, kv_cache_gib=100_000, device="1")
    message = str(caught.value)
    assert "this machine's memory: 100000.00 (Tiny) + 100000.00 (Huge) = 200000.00 GiB" in message
    assert "LORRY_KV_CACHE_GIB" in message


def add(world: World, name: str, *, is_default: bool, kv_cache_gib: float = 0.01, device: str = "0") -> Deployment:
    settings = EngineSettings(gpu_memory_utilization=0.1, device=device)
    with world.db.transaction() as session:
        return deployments.add(session, name, "Tiny", settings, is_default=is_default, kv_cache_gib=kv_cache_gib)
