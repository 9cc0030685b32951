"""Sizing: the arithmetic against a model whose numbers are known, and what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from registry import model_shape, sizing
from registry.errors import ConfigurationError
from registry.sizing import GIB, CostModel, ModelShape, Wish

# Llama-3.1-8B in bfloat16: 32 layers of 81,920 matrix edges, embedding and head of 132,352 each; 8 KV heads of 128.
LLAMA_8B = ModelShape(16_060_522_240, 2 * 32 * 8 * 128 * 2, 2 * (32 * 81_920 + 2 * 132_352))
WISH = Wish(80 * GIB, 0.9, max_num_seqs=64, max_model_len=8192, max_lora_rank=16)


def test_a_slot_of_rank_16_on_an_8b_takes_what_vllm_allocates() -> None:
    assert sizing.size(LLAMA_8B, WISH).slot_bytes == pytest.approx(84e6 + 8.5e6, rel=0.01)


def test_forty_adapters_of_an_8b_fit_and_never_swap() -> None:
    found = sizing.size(LLAMA_8B, replace(WISH, adapters=40))

    assert found.slots == 50
    assert found.never_swaps
    assert 40 * found.slot_bytes == pytest.approx(3.7e9, rel=0.01)
    assert "nothing will ever swap" in found.lines()[-1]


def test_what_is_taken_fits_the_memory() -> None:
    found = sizing.size(LLAMA_8B, replace(WISH, memory_bytes=40 * GIB, adapters=5000))

    assert found.slots == found.fitting < 5000
    assert found.kv_left_bytes >= found.kv_need_bytes
    assert not found.never_swaps


def test_a_higher_ceiling_costs_every_slot() -> None:
    low, high = (sizing.size(LLAMA_8B, replace(WISH, max_lora_rank=rank)) for rank in (16, 64))

    assert high.slot_bytes == 4 * low.slot_bytes
    assert high.fitting < low.fitting


def test_a_small_device_shares_what_is_left_between_kv_cache_and_slots() -> None:
    found = sizing.size(LLAMA_8B, replace(WISH, memory_bytes=24 * GIB, adapters=400))

    assert 0 < found.slots < 400
    assert found.kv_left_bytes >= found.kv_need_bytes >= 8192 * found.kv_bytes_per_token


def test_a_device_that_is_too_small_gets_no_slot() -> None:
    assert sizing.size(LLAMA_8B, replace(WISH, memory_bytes=16 * GIB)).slots == 0


def test_host_memory_keeps_more_adapters_than_there_are_slots() -> None:
    assert sizing.host_copies(LLAMA_8B, 16, slots=8, host_bytes=GIB) == 9
    assert sizing.host_copies(LLAMA_8B, 16, slots=8, host_bytes=512 * GIB, adapters=100) == 125


def test_workers_grow_with_the_load_and_with_missing_slots() -> None:
    cost = CostModel(base_s=0.01, row_s=0.0001, swap_s=0.05)
    need = {"output_tokens": 99, "live": 50}

    # A job takes 100 steps of 15 ms, shared by 50: 30 ms. 70 % of an hour has 84,000 of them.
    assert sizing.workers_needed(cost, 84_000, **need, slots=8, adapters=8) == 1
    assert sizing.workers_needed(cost, 84_001, **need, slots=8, adapters=8) == 2
    assert sizing.workers_needed(cost, 84_000, **need, slots=8, adapters=16) == 2


def test_a_models_folder_is_read_without_its_weights(tiny_base_dir: Path) -> None:
    shape = model_shape.read(tiny_base_dir, "float32")

    assert shape.weight_bytes == sum(file.stat().st_size for file in tiny_base_dir.glob("*.safetensors"))
    assert shape.kv_bytes_per_token > 0
    assert model_shape.read(tiny_base_dir, "bfloat16").adapter_bytes_per_rank * 2 == shape.adapter_bytes_per_rank


def test_a_folder_that_is_no_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"config\.json"):
        model_shape.read(tmp_path, "bfloat16")
    (tmp_path / "config.json").write_text('{"hidden_size": 8}', "utf-8")
    with pytest.raises(ConfigurationError, match="KV cache"):
        model_shape.read(tmp_path, "bfloat16")
