"""Both engines: adapters read ahead of their swap, and whose host copy makes room."""

from __future__ import annotations

import asyncio

import pytest

from registry.errors import AdapterLoadFailed
from tests.workers.engine_rig import MAX_CPU_LORAS, MAX_LORAS, Rig


def test_a_staged_adapter_is_read_beside_the_steps_and_its_swap_only_activates_it(rig: Rig) -> None:
    async def walk() -> None:
        busy, staged = rig.adapter(), rig.adapter()
        await rig.load(busy)
        await rig.load(rig.adapter())
        alone = await rig.answer(busy, max_tokens=60)
        running = asyncio.ensure_future(rig.answer(busy, max_tokens=60))
        await rig.until_live(busy)
        await rig.engine.stage(staged, None)
        assert staged.int_id not in (await rig.engine.residency()).slots
        await rig.until_staged(staged)
        swap = await rig.load(staged, keep=busy)

        assert swap.state == "cold", "it came from disk, however early"
        assert swap.residency is not None
        assert staged.int_id in swap.residency.slots
        assert (await running).text == alone.text
        assert (await rig.answer(staged)).output_tokens > 0
        assert (await rig.engine.residency()).step_time_loads == 0

    rig.run(walk())


def test_what_was_staged_can_be_forgotten(rig: Rig) -> None:
    async def walk() -> None:
        staged = rig.adapter()
        await rig.engine.stage(staged, None)
        await rig.engine.unstage(staged.int_id)
        assert await rig.engine.is_staged(staged.int_id), "nothing to wait for"
        assert (await rig.load(staged)).state == "cold"

    rig.run(walk())


def test_a_staged_adapter_that_cannot_be_loaded_fails_at_its_swap(rig: Rig) -> None:
    async def walk() -> None:
        bad = rig.missing()
        await rig.engine.stage(bad, None)
        with pytest.raises(AdapterLoadFailed):
            await rig.load(bad)
        residency = await rig.engine.residency()
        assert bad.int_id not in residency.slots + residency.host

    rig.run(walk())


def test_the_host_copy_that_is_named_makes_room(rig: Rig) -> None:
    async def walk() -> None:
        known = [rig.adapter() for _ in range(MAX_CPU_LORAS)]
        for adapter in known:
            await rig.load(adapter)
        host = (await rig.engine.residency()).host
        oldest, named = [int_id for int_id in host if int_id not in {a.int_id for a in known[-MAX_LORAS:]}][:2]
        await rig.engine.swap_in(rig.adapter(), known[-1].int_id, named)

        after = (await rig.engine.residency()).host
        assert named not in after
        assert oldest in after

    rig.run(walk())
