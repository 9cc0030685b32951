"""Carrying out swaps and what goes before: fetch and verify the files, read ahead, be sure that the victim is idle.

Which adapter comes and whose slot it takes is `policy`'s choice; what is in the slots is `slots`' book. At most one
adapter is read ahead, into a free place of the host memory or that of the copy needed last.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from registry.errors import AdapterLoadFailed, LorryError
from registry.store import Store
from workers.generation import AdapterRef, Engine, Residency
from workers.held import SwapRecord
from workers.swaps import SwapHistory
from workers.victims import HostCopy, victim

_STILL_LIVE_S = 0.002
_STILL_READING_S = 0.005


class Loader:
    """One swap and one reading ahead at a time, on the engine's loop. `history` serves the jobs' timing."""

    def __init__(self, engine: Engine, store: Store, next_turns: Callable[[], Mapping[int, int]]) -> None:
        """`next_turns`: the held jobs' next uses of adapters."""
        self._engine = engine
        self._store = store
        self.history = SwapHistory()
        self.ahead: int | None = None
        """The adapter that is being read ahead, or has been."""
        self._reading: asyncio.Task[float] | None = None
        self._forgetting: asyncio.Task[None] | None = None
        self._found = Residency((), (), 0)
        self._memory = asyncio.Lock()
        self._next_turns = next_turns
        self.backlog: Mapping[int, int] = {}
        """Places in the backlog's order of next uses, of adapters that are in slots or in host memory."""

    @property
    def known(self) -> frozenset[int]:
        """Adapters in slots or in host memory."""
        return frozenset(self._found.slots) | frozenset(self._found.host)

    async def swap(self, ref: AdapterRef, digest: str, evict: int | None, freed: Callable[[int], None]) -> SwapRecord:
        """Bring an adapter in. `freed` is told when the victim's slot is given up, whatever comes of the load.

        Raises AdapterLoadFailed or EngineDead, or EngineError when the engine contradicts our books.
        """
        fetch_ms = await self._read_ahead_ms(ref)
        async with self._memory:  # what is in host memory must not change between looking and swapping
            if fetch_ms is None:
                fetch_ms = await self._at_hand(ref, digest)
            if evict is not None:
                await self._until_idle(evict)
                freed(evict)
            begun_s = time.monotonic()
            try:
                swap = await self._engine.swap_in(ref, evict, self._spare(ref.int_id, leaving=evict))
            except AdapterLoadFailed:
                self.history.note_failure(ref, begun_s, time.monotonic())
                raise
        self._found = swap.residency or self._found
        return SwapRecord(swap, fetch_ms, self.history.note(ref, swap, evict))

    async def residency(self) -> Residency:
        """The engine's word. Raises EngineDead."""
        self._found = await self._engine.residency()
        return self._found

    def read_ahead(self, ref: AdapterRef, digest: str) -> None:
        """Begin to bring an adapter into host memory, beside the running steps. One at a time."""
        if self.ahead is None and ref.int_id not in self._found.host and self._has_place():
            self.ahead = ref.int_id
            self._reading = asyncio.ensure_future(self._read(ref, digest))

    def forget_ahead(self) -> None:
        """Nobody wants what was read ahead any more."""
        if self.ahead is not None and self._reading is not None:
            self._reading.cancel()
            self._reading = None
            self._forgetting = asyncio.ensure_future(self._unstage(self.ahead))

    async def _unstage(self, ahead: int) -> None:
        """Nothing else is read ahead before the engine has heard of it. Staging may have dropped a host copy."""
        with suppress(LorryError):  # a dead engine holds nothing
            async with self._memory:
                await self._engine.unstage(ahead)
                await self.residency()
        self.ahead = None

    def reset(self) -> None:
        """The engine is new: nothing is anywhere."""
        for task in (self._reading, self._forgetting):
            if task is not None:
                task.cancel()
        self.ahead = self._reading = self._forgetting = None
        self._found = Residency((), (), 0)

    async def _read_ahead_ms(self, ref: AdapterRef) -> float | None:
        """Wait for the adapter if it is being read ahead; what fetching took, or None when it was not or failed."""
        if self.ahead != ref.int_id or self._reading is None:
            return None
        reading, self.ahead, self._reading = self._reading, None, None
        with suppress(Exception):  # whatever it was, the swap itself meets it and says so
            return await reading
        return None

    async def _at_hand(self, ref: AdapterRef, digest: str) -> float:
        """Verify the files; what that took in ms. A host copy needs none."""
        if ref.int_id in self._found.host:
            return 0.0
        _, fetch_ms = await asyncio.to_thread(self._store.local_path, ref.path, digest)
        return fetch_ms

    async def _read(self, ref: AdapterRef, digest: str) -> float:
        """Verifying reads every byte, so that the page cache has them; then the engine's own thread packs them."""
        _, fetch_ms = await asyncio.to_thread(self._store.local_path, ref.path, digest)
        async with self._memory:
            self._found = await self._engine.stage(ref, self._spare(ref.int_id))
        while not await self._engine.is_staged(ref.int_id):  # noqa: ASYNC110 - the engine has no event for it
            await asyncio.sleep(_STILL_READING_S)
        return fetch_ms

    def _has_place(self) -> bool:
        places = self._engine.config.max_cpu_loras
        return len(self._found.host) < places or self._spare(0) is not None

    def _spare(self, coming: int, leaving: int | None = None) -> int | None:
        """The host copy to give up if the cache is full: of those in no slot, the one needed last."""
        turns = self._next_turns()
        copies = [
            HostCopy(adapter, float(-age), turns.get(adapter), self.backlog.get(adapter))
            for age, adapter in enumerate(self._found.host)  # the least recently used comes first
            if adapter != coming and (adapter not in self._found.slots or adapter == leaving)
        ]
        spare = victim(copies)
        return None if spare is None else spare.adapter

    async def _until_idle(self, adapter: int) -> None:
        """An aborted request keeps its adapter until the engine's next step: a pin ends only by the engine's word."""
        while adapter in await self._engine.live_adapters():  # noqa: ASYNC110 - the engine has no event for it
            await asyncio.sleep(_STILL_LIVE_S)
