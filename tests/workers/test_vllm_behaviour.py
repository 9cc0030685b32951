"""Re-checks of vLLM behaviour that Lorry is built around: after an upgrade these say what no longer holds.

A failure here is news, not always a fault: where vLLM has mended something, our guard for it can go.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from registry.errors import EngineDead
from tests.workers.engine_rig import CONTEXT, Rig
from workers.engine import VllmEngine
from workers.generation import AdapterRef
from workers.probe import dialect, private_names
from workers.probe.watch import is_gone

pytestmark = pytest.mark.engine


def _engine(rig: Rig) -> VllmEngine:
    assert isinstance(rig.engine, VllmEngine)
    return rig.engine


def _llm(rig: Rig) -> Any:
    return _engine(rig)._llm


def test_stock_cpu_operators_give_base_rows_the_last_slots_adapter_and_ours_do_not() -> None:
    import torch
    from vllm.lora.ops.torch_ops import bgmv_shrink

    from workers.probe.cpu_ops import _bgmv_shrink

    rows, weights = torch.ones(2, 4), torch.stack([torch.ones(3, 4), 5 * torch.ones(3, 4)])
    slots, stock, ours = torch.tensor([0, -1]), torch.zeros(2, 3), torch.zeros(2, 3)
    bgmv_shrink(rows, weights, stock, slots)
    _bgmv_shrink(rows, weights, ours, slots)

    assert stock.tolist() == [[4.0] * 3, [20.0] * 3]
    assert ours.tolist() == [[4.0] * 3, [0.0] * 3]


def test_our_cpu_operators_do_what_the_stock_ones_do_for_adapter_rows() -> None:
    import torch
    from vllm.lora.ops import torch_ops

    from workers.probe import cpu_ops

    torch.manual_seed(0)
    x, slots = torch.randn(6, 8), torch.tensor([2, 0, 0, 1, 2, 0])
    a, b = torch.randn(3, 1, 4, 8), torch.randn(3, 1, 5, 4)
    for ours, stock in ((cpu_ops._bgmv_shrink, torch_ops.bgmv_shrink),):
        got, expected = torch.zeros(6, 4), torch.zeros(6, 4)
        ours(x, a, got, slots, 0.5)
        stock(x, a, expected, slots, 0.5)
        assert torch.allclose(got, expected, atol=1e-5)
    shrunk, start = torch.randn(6, 4), torch.randn(6, 9)
    for add in (True, False):
        got, expected = start.clone(), start.clone()
        cpu_ops._bgmv_expand_slice(shrunk, b, got, slots, 2, 5, add)
        torch_ops.bgmv_expand_slice(shrunk, b, expected, slots, 2, 5, add)
        assert torch.allclose(got, expected, atol=1e-5)
        got, expected = start.clone(), start.clone()
        cpu_ops._bgmv_expand(shrunk, b, got, slots, add)
        torch_ops.bgmv_expand(shrunk, b, expected, slots, add)
        assert torch.allclose(got, expected, atol=1e-5)


def test_every_private_name_is_there_and_a_missing_one_is_named(vllm_rig: Rig) -> None:
    assert private_names.absent(_llm(vllm_rig), private_names.HOST_NAMES) == []
    assert private_names.absent(_llm(vllm_rig), ["output_processor.moved"]) == ["output_processor.moved"]


def test_a_failed_activation_leaves_the_adapter_registered(vllm_rig: Rig) -> None:
    """Why a failed load is undone."""
    from vllm.lora.request import LoRARequest

    rig = vllm_rig
    bad = rig.adapter(rank=16)
    config = Path(bad.path) / "adapter_config.json"
    config.write_text(config.read_text().replace('"r": 16', '"r": 8'))

    async def walk() -> None:
        request = LoRARequest(bad.name, bad.int_id, bad.path)
        with pytest.raises(Exception, match="must match"):
            await _llm(rig).add_lora(request)
        assert bad.int_id in await _llm(rig).list_loras()
        await _llm(rig).remove_lora(bad.int_id)

    rig.run(walk())


def test_max_tokens_beyond_the_context_is_capped_in_silence(vllm_rig: Rig) -> None:
    """Why `EngineGuard` counts before vLLM sees a request."""
    rig = vllm_rig
    generation = rig.generation(max_tokens=10 * CONTEXT)
    output = rig.run(dialect.last_output(_llm(rig), generation, "beyond-the-context"))

    assert len(output.outputs[0].token_ids) == CONTEXT - len(generation.prompt_token_ids)


def test_a_prompt_beyond_the_context_is_a_client_error(vllm_rig: Rig) -> None:
    from vllm.exceptions import VLLMClientError

    rig = vllm_rig
    with pytest.raises(VLLMClientError) as refusal:
        rig.run(dialect.last_output(_llm(rig), rig.generation(prompt="long " * CONTEXT), "long-prompt"))

    assert "long" not in dialect.refusal(refusal.value).message.replace("too long", "")


def test_an_abort_answers_with_the_tokens_so_far(vllm_rig: Rig) -> None:
    rig = vllm_rig

    async def walk() -> Any:
        adapter = rig.adapter()
        await rig.load(adapter)
        output = asyncio.ensure_future(
            dialect.last_output(_llm(rig), rig.generation(adapter, max_tokens=400), "aborted-from-outside")
        )
        await rig.until_live(adapter)
        await _llm(rig).abort("aborted-from-outside")
        return await output

    assert rig.run(walk()).outputs[0].finish_reason == "abort"


def test_prefixes_are_shared_within_a_salt_and_never_across(vllm_rig: Rig) -> None:
    rig = vllm_rig
    prompt = "The customer reports that order 48213 arrived damaged. " * 16

    async def cached(salt: str) -> int:
        generation = rig.generation(prompt=prompt, max_tokens=1)
        output = await rig.engine.generate(
            type(generation)("job", generation.prompt_token_ids, generation.sampling, cache_salt=salt)
        )
        return output.cached_tokens

    assert [rig.run(cached(salt)) for salt in ("t1", "t1", "t2")][0::2] == [0, 0]
    assert rig.run(cached("t1")) > 0


def test_an_adapter_packed_on_a_thread_answers_as_one_that_vllm_packed_itself(vllm_rig: Rig) -> None:
    """Why a staged adapter may be put into vLLM's cache as it is."""
    from vllm.lora.request import LoRARequest

    rig = vllm_rig
    first = rig.adapter()
    twin = AdapterRef(first.int_id + 500_000, first.name.replace("notes", "twin"), first.path)

    async def walk() -> tuple[str, str]:
        await rig.load(first)
        await _engine(rig)._rpc("lorry_forget", first.int_id)
        await _llm(rig).add_lora(LoRARequest(first.name, first.int_id, first.path))
        await rig.engine.residency()
        theirs = await rig.answer(first, max_tokens=24)
        await rig.engine.stage(twin, None)
        await rig.until_staged(twin)
        await rig.load(twin, keep=first)
        return theirs.text, (await rig.answer(twin, max_tokens=24)).text

    theirs, ours = rig.run(walk())
    assert ours == theirs


def test_an_engine_tells_how_many_tokens_it_has_room_for(vllm_rig: Rig) -> None:
    rig = vllm_rig
    assert (rig.engine.capacity.kv_tokens or 0) > CONTEXT
    assert (rig.engine.capacity.batched_tokens or 0) > 0

    async def walk() -> int:
        running = asyncio.ensure_future(rig.answer(max_tokens=2))
        while not (prompts := rig.engine.prefilling_tokens) and not running.done():  # noqa: ASYNC110
            await asyncio.sleep(0)
        await running
        return prompts

    assert rig.run(walk()) == len(rig.generation().prompt_token_ids)
    assert rig.engine.prefilling_tokens == 0


def test_a_killed_engine_process_ends_every_waiting_call(vllm_rig: Rig) -> None:
    """vLLM wakes requests but not RPCs; keep this the last test of the shared engine, it leaves it closed."""
    rig, pids = vllm_rig, list(_engine(vllm_rig)._pids)

    async def running() -> None:
        with pytest.raises(EngineDead):
            await rig.answer(max_tokens=400)
        with pytest.raises(EngineDead):
            await rig.engine.residency()

    waiting = asyncio.run_coroutine_threadsafe(running(), rig.engine.loop)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    waiting.result(15)
    rig.engine.close()

    assert pids
    assert all(is_gone(pid) for pid in pids)
