"""An engine without a model, for policy, volume and fault tests: same contract, invented answers, simulated times.

The answer to a prompt is a digest of (adapter name or `base`, prompt ids): who served a job with the wrong adapter is
found out. The markers of `workers/fake_markers.py` make it fail on purpose; a worker uses it only with
`LORRY_ENGINE=fake`.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from registry.errors import (
    AdapterLoadFailed,
    EngineDead,
    EngineError,
    EngineStartFailed,
    GenerationFailed,
)
from workers.engine_guard import EngineGuard
from workers.engine_loop import EngineLoop
from workers.fake_markers import Marker, adapter_fails, digest, prompt_reader
from workers.generation import AdapterRef, Capacity, EngineConfig, Generated, Generation, Residency, Swap


@dataclass
class _Run:
    """What one start of the engine holds."""

    guard: EngineGuard
    seats: asyncio.Semaphore
    slots: OrderedDict[int, None] = field(default_factory=OrderedDict)
    host: OrderedDict[int, None] = field(default_factory=OrderedDict)
    staged: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    aborted: dict[int, int] = field(default_factory=dict)
    dead: asyncio.Event = field(default_factory=asyncio.Event)
    hung: bool = False
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)


class FakeEngine:
    """See `workers.generation.Engine`. With `step_ms` 0 it answers at once."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        step_ms: float = 0.0,
        tokens: int = 16,
        load_ms: float = 0.0,
        activate_ms: float = 0.0,
        capacity: Capacity | None = None,
    ) -> None:
        """`tokens`: length of every answer unless `max_tokens` cuts it; each costs `step_ms`, as the prompt does."""
        self.capacity = capacity or Capacity()
        self.config = config
        self.step_s = step_ms / 1000
        self.tokens = tokens
        self.load_s = load_ms / 1000
        self.activate_s = activate_ms / 1000
        self._runner = EngineLoop()
        self._run: _Run | None = None
        self._serial = itertools.count(1)
        self._seen: set[str] = set()
        self._scrubbed = False
        self._read = prompt_reader(Path(config.model_path))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of every coroutine here; it outlives `close`."""
        return self._runner.loop

    def start(self) -> None:
        """Start, or start again after `close`."""
        if self._run is not None:
            raise EngineStartFailed("The engine runs already: close it before starting it again.")
        self._run = _Run(EngineGuard(self.config), asyncio.Semaphore(self.config.max_num_seqs))

    @property
    def prefilling_tokens(self) -> int:
        """Always 0: a prompt of any length takes one step here."""
        return 0

    async def stage(self, adapter: AdapterRef, drop: int | None) -> Residency:
        """See `Engine.stage`."""
        run = self._alive()
        if adapter.int_id not in run.host and adapter.int_id not in run.staged:
            self._make_room(run, drop)
            run.staged[adapter.int_id] = asyncio.ensure_future(asyncio.sleep(self.load_s))
        return await self.residency()

    async def is_staged(self, int_id: int) -> bool:
        """See `Engine.is_staged`."""
        staged = self._alive().staged.get(int_id)
        return staged is None or staged.done()

    async def unstage(self, int_id: int) -> None:
        """See `Engine.unstage`."""
        self._alive().staged.pop(int_id, None)

    def _make_room(self, run: _Run, drop: int | None) -> None:
        while len(run.host) + len(run.staged) >= self.config.max_cpu_loras:
            idle = [int_id for int_id in run.host if int_id not in run.slots]
            if not idle:
                return
            run.host.pop(drop if drop in idle else idle[0])

    async def swap_in(self, adapter: AdapterRef, evict: int | None, drop: int | None = None) -> Swap:
        """See `Engine.swap_in`."""
        run = self._alive()
        begun = time.monotonic()
        if run.guard.is_hot(adapter.int_id):
            run.slots.move_to_end(adapter.int_id)
            return Swap("hot", 0.0, 0.0, (), begun, begun)
        return await asyncio.shield(asyncio.ensure_future(self._swap(run, adapter, evict, drop)))

    async def _swap(self, run: _Run, adapter: AdapterRef, evict: int | None, drop: int | None) -> Swap:
        with run.guard.swapping(adapter, evict):
            async with run.loading:
                begun = time.monotonic()
                evicted = (evict,) if evict is not None and evict in run.slots else ()
                if evict is not None:
                    run.slots.pop(evict, None)
                try:
                    state, load_ms = await self._load(run, adapter, drop)
                    if len(run.slots) >= self.config.max_loras:
                        raise EngineError(f"No slot is free for adapter {adapter.int_id}: name an idle one as `evict`.")
                    await asyncio.sleep(self.activate_s)
                    run.slots[adapter.int_id] = None
                finally:
                    run.guard.slots_are(run.slots)
        found = Residency(tuple(run.slots), tuple(run.host), 0)
        return Swap(state, load_ms, self.activate_s * 1000, evicted, begun, time.monotonic(), found)

    async def _load(self, run: _Run, adapter: AdapterRef, drop: int | None) -> tuple[Literal["warm", "cold"], float]:
        if adapter.int_id in run.host:
            run.host.move_to_end(adapter.int_id)
            return "warm", 0.0
        reason = adapter_fails(Path(adapter.path))
        if reason is not None:
            raise AdapterLoadFailed(reason)
        staged = run.staged.pop(adapter.int_id, None)
        await (staged if staged is not None else asyncio.sleep(self.load_s))
        self._make_room(run, drop)
        run.host[adapter.int_id] = None
        return "cold", self.load_s * 1000

    async def generate(self, generation: Generation) -> Generated:
        """See `Engine.generate`, and the markers of `workers/fake_markers.py`."""
        run = self._alive()
        run.guard.check_generation(generation)
        text = self._read(generation.prompt_token_ids)
        arrived = time.monotonic()
        with run.guard.running(generation.adapter):
            async with run.seats:
                scheduled = time.monotonic()
                self._trip(run, text)
                wanted = min(self.tokens, generation.sampling.max_tokens)
                try:
                    await self._steps(run, 1)
                    first = time.monotonic()
                    await self._steps(run, wanted - 1)
                except asyncio.CancelledError:
                    self._linger(run, generation.adapter)
                    raise
        if generation.adapter is not None and generation.adapter.int_id in run.slots:
            run.slots.move_to_end(generation.adapter.int_id)
        return Generated(
            text=digest(generation),
            finish_reason="stop" if wanted == self.tokens else "length",
            prompt_tokens=len(generation.prompt_token_ids),
            output_tokens=wanted,
            cached_tokens=0,
            queue_ms=(scheduled - arrived) * 1000,
            prefill_ms=(first - scheduled) * 1000,
            decode_ms=(time.monotonic() - first) * 1000,
            first_token_at_s=first,
            corrupted=Marker.CORRUPT in text or (Marker.CORRUPT_UNTIL_SCRUB in text and not self._scrubbed),
        )

    def _trip(self, run: _Run, text: str) -> None:
        if run.dead.is_set():
            return
        if Marker.POISON in text:
            os._exit(139)
        if Marker.DEATH in text:
            run.dead.set()
        run.hung |= Marker.HANG in text
        if Marker.FAIL in text or (Marker.FAIL_ONCE in text and text not in self._seen):
            self._seen.add(text)
            raise GenerationFailed("The engine lost this request (marker); try it again.")

    async def _steps(self, run: _Run, count: int) -> None:
        """Let `count` steps pass. Raises EngineDead as soon as the engine dies."""
        if run.hung:
            await run.dead.wait()
        if self.step_s and count and not run.dead.is_set():
            try:
                await asyncio.wait_for(run.dead.wait(), self.step_s * count)
            except TimeoutError:
                return
        if run.dead.is_set():
            raise EngineDead("The engine died; every request in it is lost. Close it and start it again.")

    def _linger(self, run: _Run, adapter: AdapterRef | None) -> None:
        """An aborted request takes part in one more step, as in vLLM."""
        if adapter is not None:
            key = next(self._serial)
            run.aborted[key] = adapter.int_id
            self.loop.call_later(self.step_s, run.aborted.pop, key)

    async def residency(self) -> Residency:
        """See `Engine.residency`."""
        run = self._alive()
        run.guard.slots_are(run.slots)
        return Residency(tuple(run.slots), tuple(run.host), 0)

    async def live_adapters(self) -> frozenset[int]:
        """See `Engine.live_adapters`."""
        run = self._alive()
        if run.hung:
            await run.dead.wait()
        return run.guard.running_adapters.union(run.aborted.values())

    async def scrub(self) -> None:
        """See `Engine.scrub`."""
        if not self._alive().guard.idle:
            raise EngineError("The KV cache can only be scrubbed with no request running: drain first.")
        self._scrubbed = True

    def close(self, timeout_s: float = 15.0) -> None:
        """See `Engine.close`."""
        run, self._run = self._run, None
        if run is not None:
            self.loop.call_soon_threadsafe(run.dead.set)

    def _alive(self) -> _Run:
        if self._run is None or self._run.dead.is_set():
            raise EngineDead("The engine is not running: start it (after `close`, if it died).")
        return self._run
