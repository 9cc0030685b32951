"""Carrying out a swap: fetch and verify the files, be sure that the victim is idle, bring the adapter in, remember it.

Which adapter and which victim is `policy`'s choice; what is in the slots afterwards is `slots`' book.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from registry.store import Store
from workers.generation import AdapterRef, Engine
from workers.held import SwapRecord
from workers.swaps import SwapHistory

_STILL_LIVE_S = 0.002


class Loader:
    """One swap at a time. `history` serves the jobs' timing."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine = engine
        self._store = store
        self.history = SwapHistory()

    async def swap(self, ref: AdapterRef, digest: str, evict: int | None, freed: Callable[[int], None]) -> SwapRecord:
        """Bring an adapter in. `freed` is told when the victim's slot is given up, whatever comes of the load.

        Raises AdapterLoadFailed or EngineDead.
        """
        _, fetch_ms = await asyncio.to_thread(self._store.local_path, ref.path, digest)
        if evict is not None:
            await self._until_idle(evict)
            freed(evict)
        swap = await self._engine.swap_in(ref, evict)
        return SwapRecord(swap, fetch_ms, self.history.note(ref, swap, evict))

    async def _until_idle(self, adapter: int) -> None:
        """An aborted request keeps its adapter until the engine's next step: a pin ends only by the engine's word."""
        while adapter in await self._engine.live_adapters():  # noqa: ASYNC110 - the engine has no event for it
            await asyncio.sleep(_STILL_LIVE_S)
