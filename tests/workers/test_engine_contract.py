"""What the planner may rely on, held against both engines."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from registry.errors import AdapterLoadFailed, EngineDead, EngineError, InvalidGeneration
from tests.workers.engine_rig import CONTEXT, MAX_LORAS, Rig


def test_an_adapter_is_cold_then_hot_and_warm_after_its_eviction(rig: Rig) -> None:
    async def walk() -> None:
        first, second, third = rig.adapter(), rig.adapter(), rig.adapter()
        cold = await rig.load(first)
        await rig.load(second)
        hot = await rig.load(first, keep=first)
        evicting = await rig.engine.swap_in(third, first.int_id)
        warm = await rig.engine.swap_in(first, third.int_id)

        assert (cold.state, hot.state, evicting.state, warm.state) == ("cold", "hot", "cold", "warm")
        assert cold.load_ms > 0
        assert cold.activate_ms > 0
        assert cold.ended_at_s - cold.begun_at_s >= (cold.load_ms + cold.activate_ms) / 1000
        assert cold.begun_at_s <= cold.ended_at_s <= time.monotonic()
        assert (hot.load_ms, hot.activate_ms, hot.evicted) == (0, 0, ())
        assert (warm.load_ms, warm.evicted) == (0, (third.int_id,))
        assert warm.activate_ms > 0
        assert evicting.evicted == (first.int_id,)

    rig.run(walk())


def test_residency_lists_slots_and_host_copies_oldest_first(rig: Rig) -> None:
    async def walk() -> None:
        first, second, third = rig.adapter(), rig.adapter(), rig.adapter()
        await rig.load(first)
        await rig.load(second)
        await rig.engine.swap_in(third, first.int_id)
        residency = await rig.engine.residency()

        assert residency.slots == (second.int_id, third.int_id)
        assert residency.host[-3:] == (first.int_id, second.int_id, third.int_id)

    rig.run(walk())


def test_full_host_memory_forgets_the_oldest_that_is_in_no_slot(rig: Rig) -> None:
    async def walk() -> None:
        kept, *others = [rig.adapter() for _ in range(5)]
        for adapter in (kept, *others):
            await rig.load(adapter, keep=kept)
        residency = await rig.engine.residency()

        assert residency.slots == (kept.int_id, others[-1].int_id)
        assert set(residency.host) == {kept.int_id, *(other.int_id for other in others[1:])}

    rig.run(walk())


def test_a_swap_without_a_free_slot_is_refused_and_changes_nothing(rig: Rig) -> None:
    async def walk() -> None:
        await rig.load(rig.adapter())
        await rig.load(rig.adapter())
        before = await rig.engine.residency()
        with pytest.raises(EngineError, match=f"All {MAX_LORAS} slots"):
            await rig.engine.swap_in(rig.adapter(), None)

        assert await rig.engine.residency() == before

    rig.run(walk())


def test_an_adapter_with_running_requests_keeps_its_slot(rig: Rig) -> None:
    async def walk() -> None:
        busy, idle = rig.adapter(), rig.adapter()
        await rig.load(busy)
        await rig.load(idle)
        running = asyncio.ensure_future(rig.answer(busy, max_tokens=60))
        await rig.until_live(busy)
        with pytest.raises(EngineError, match="wait for them"):
            await rig.engine.swap_in(rig.adapter(), busy.int_id)
        await running
        swap = await rig.engine.swap_in(rig.adapter(), busy.int_id)

        assert swap.evicted == (busy.int_id,)

    rig.run(walk())


def test_a_request_whose_adapter_is_in_no_slot_is_refused(rig: Rig) -> None:
    async def walk() -> None:
        with pytest.raises(EngineError, match="in no slot"):
            await rig.answer(rig.adapter())
        assert (await rig.answer(None)).output_tokens > 0

    rig.run(walk())


def test_a_failed_load_is_undone_and_disturbs_nobody(rig: Rig) -> None:
    async def walk() -> None:
        busy, idle, bad = rig.adapter(), rig.adapter(), rig.missing()
        await rig.load(busy)
        await rig.load(idle)
        alone = await rig.answer(busy, max_tokens=60)
        running = asyncio.ensure_future(rig.answer(busy, max_tokens=60))
        await rig.until_live(busy)
        with pytest.raises(AdapterLoadFailed) as failure:
            await rig.engine.swap_in(bad, idle.int_id)
        residency = await rig.engine.residency()

        assert str(rig.adapters_dir) not in failure.value.message
        assert residency.slots == (busy.int_id,)
        assert bad.int_id not in residency.host
        assert (await running).text == alone.text
        assert (await rig.engine.swap_in(idle, None)).state == "warm"

    rig.run(walk())


def test_a_cancelled_request_leaves_the_engine_and_its_neighbours_go_on(rig: Rig) -> None:
    async def walk() -> None:
        doomed, neighbour = rig.adapter(), rig.adapter()
        await rig.load(doomed)
        await rig.load(neighbour)
        alone = await rig.answer(neighbour, max_tokens=60)
        cancelled = asyncio.ensure_future(rig.answer(doomed, max_tokens=400))
        other = asyncio.ensure_future(rig.answer(neighbour, max_tokens=60))
        await rig.until_live(doomed, neighbour)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await rig.until_gone(doomed)

        assert (await other).text == alone.text
        assert (await rig.engine.swap_in(rig.adapter(), doomed.int_id)).evicted == (doomed.int_id,)

    rig.run(walk())


def test_requests_cancelled_at_any_moment_cause_no_load_inside_a_step(rig: Rig) -> None:
    """Also at the moment of handing over, where vLLM by itself would leave the request running."""

    async def one(delay_s: float) -> None:
        adapter = rig.adapter()
        await rig.load(adapter)
        task = asyncio.ensure_future(rig.answer(adapter, max_tokens=200))
        await asyncio.sleep(delay_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await rig.until_gone(adapter)
        await rig.engine.swap_in(rig.adapter(), adapter.int_id)

    async def walk() -> None:
        background = asyncio.ensure_future(rig.answer(None, max_tokens=300))
        for step in range(12):
            await one(step * 0.0004)
        background.cancel()
        assert (await rig.engine.residency()).step_time_loads == 0

    rig.run(walk())


def test_requests_that_cannot_fit_are_refused_and_name_the_field(rig: Rig) -> None:
    async def walk() -> None:
        for text, max_tokens, param in (("a", CONTEXT, "prompt"), ("", 4, "prompt"), ("a", 0, "max_tokens")):
            with pytest.raises(InvalidGeneration) as refusal:
                await rig.answer(prompt=text, max_tokens=max_tokens)
            assert refusal.value.param == param
        assert (await rig.answer()).output_tokens == 16

    rig.run(walk())


def test_rows_of_a_mixed_batch_get_their_own_adapter_or_none(rig: Rig) -> None:
    async def walk() -> None:
        first, second = rig.adapter(), rig.adapter()
        await rig.load(first)
        await rig.load(second)
        rows = (None, first, second) * 4
        alone = {row: (await rig.answer(row)).text for row in (None, first, second)}
        mixed = await asyncio.gather(*(rig.answer(row) for row in rows))

        assert len(set(alone.values())) == 3
        assert [answer.text for answer in mixed] == [alone[row] for row in rows]

    rig.run(walk())


def test_the_parts_of_a_requests_time_are_its_own(rig: Rig) -> None:
    async def walk() -> None:
        begun = time.monotonic()
        answer = await rig.answer(max_tokens=20)
        ended = time.monotonic()

        assert begun < answer.first_token_at_s < ended
        assert min(answer.queue_ms, answer.prefill_ms, answer.decode_ms) >= 0
        assert answer.prefill_ms > 0
        assert answer.decode_ms > 0
        assert answer.queue_ms + answer.prefill_ms + answer.decode_ms <= (ended - begun) * 1000
        assert (answer.finish_reason, answer.output_tokens, answer.corrupted) == ("length", 20, False)
        assert answer.prompt_tokens == len(rig.generation().prompt_token_ids)

    rig.run(walk())


def test_scrubbing_needs_an_idle_engine(rig: Rig) -> None:
    async def walk() -> None:
        before = await rig.answer()
        running = asyncio.ensure_future(rig.answer(max_tokens=60))
        await asyncio.sleep(0)
        with pytest.raises(EngineError, match="drain"):
            await rig.engine.scrub()
        await running
        await rig.engine.scrub()

        assert (await rig.answer()).text == before.text

    rig.run(walk())


def test_no_load_ever_happened_inside_a_step(rig: Rig) -> None:
    assert rig.run(rig.engine.residency()).step_time_loads == 0


def test_closing_ends_running_requests_of_an_engine_that_hangs_too_and_a_new_start_serves_again(rig: Rig) -> None:
    """Keep this the last test of the shared engine here: it costs a start."""

    async def running() -> None:
        with pytest.raises(EngineDead):
            await rig.answer(max_tokens=400)

    waiting = asyncio.run_coroutine_threadsafe(running(), loop := rig.engine.loop)
    rig.run(asyncio.sleep(0))
    for pid in getattr(rig.engine, "_pids", ()):
        os.kill(pid, signal.SIGSTOP)
    rig.engine.close(0.0)
    rig.engine.close()
    waiting.result(10)
    with pytest.raises(EngineDead):
        rig.run(rig.answer())
    rig.engine.start()

    assert (rig.engine.loop is loop, rig.run(rig.engine.residency()).slots) == (True, ())
    assert rig.run(rig.answer()).output_tokens == 16
