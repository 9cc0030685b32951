"""What is done to the engine between jobs, one thing at a time: a swap, a scrub, an audit of its slots.

Whatever goes wrong in here ends the jobs it concerns and nobody else's, and never leaves the planner waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from registry import metrics
from registry.errors import AdapterFilesLost, AdapterLoadFailed, EngineDead, GenerationFailed
from registry.logs import get_logger
from workers.corruption import Corruption
from workers.endings import Endings
from workers.generation import AdapterRef, Residency
from workers.held import WaitingRoom
from workers.loader import Loader
from workers.outcomes import Ending
from workers.policy import SwapIn
from workers.slots import Slots

AUDIT_S = 5.0
"""How often the slots are compared with the engine's when no swap does it."""

_log = get_logger("engine-work")


class Owner(Protocol):
    """The planner, as seen from here."""

    def look(self) -> None:
        """Something has changed: decide anew."""

    def engine_died(self) -> None:
        """The engine is gone."""

    async def clear_out(self, adapters: frozenset[int]) -> None:
        """Hand back the live jobs of these adapters and wait until they are out of the engine."""


class EngineWork:
    """`busy` while something is under way. On the engine's loop only."""

    def __init__(
        self, owner: Owner, loader: Loader, slots: Slots, waiting: WaitingRoom, corruption: Corruption, endings: Endings
    ) -> None:
        self._owner = owner
        self._loader = loader
        self._slots = slots
        self._waiting = waiting
        self._corruption = corruption
        self._endings = endings
        self.task: asyncio.Task[None] | None = None
        self.loading: int | None = None
        """The adapter that is being swapped in."""
        self.mending = False
        """The books and the engine differ: nothing may be admitted."""
        self.audit_due = False
        self._audited_at_s = 0.0
        self.differences = 0
        self.step_time_loads = 0

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return self.task is not None

    def swap(self, decision: SwapIn) -> None:
        """Begin to bring an adapter in."""
        self._slots.leaves(decision.evict)
        self.loading = decision.adapter
        self._begin(self._swap(decision))

    def scrub(self) -> None:
        """Begin to clean the KV cache; nothing may be running."""
        self._begin(self._corruption.scrub())

    def audit_if_due(self, now_s: float) -> None:
        """Compare the slots with the engine's when that has not been done for a while, or something was odd."""
        if self.audit_due or now_s - self._audited_at_s > AUDIT_S:
            self._begin(self._audit())

    def stop(self) -> None:
        """The engine is dead: what is under way has nothing left to do."""
        if self.task is not None:
            asyncio.get_running_loop().call_soon(self.task.cancel)  # after its first step, or it never says its end

    def reset(self) -> None:
        """The engine is new."""
        self.mending = self.audit_due = False
        self._audited_at_s = time.monotonic()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.ensure_future(self._guarded(work))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EngineDead:
            self._owner.engine_died()
        except Exception as error:  # noqa: BLE001 - a defect here must not stop the planner
            _log.error("work on the engine broke off", error=type(error).__name__)
            self.audit_due = True
            if self.loading is not None and self.loading not in self._slots.resident:  # or it breaks off for ever
                self._fail(self.loading, GenerationFailed("The adapter could not be brought in."))
        finally:
            self.task = self.loading = None
            self._slots.leaves(None)
            self._owner.look()

    async def _swap(self, decision: SwapIn) -> None:
        begun_s = time.monotonic()
        ref, digest = self._waiting.adapter_ref(decision.adapter)
        try:
            record = await self._loader.swap(ref, digest, decision.evict, self._freed)
        except EngineDead:
            raise
        except AdapterLoadFailed as error:
            _log.warning("an adapter could not be loaded; its jobs fail", adapter=ref.int_id)
            self._blame(ref, error)
            self._fail(ref.int_id, type(error)(f"The adapter could not be loaded: {error.message}"))
            await self._audit()
        except Exception as error:  # noqa: BLE001 - the engine contradicts our books, or a defect: try these jobs anew
            _log.error("a swap broke off", adapter=ref.int_id, error=type(error).__name__)
            self._fail(ref.int_id, GenerationFailed("The adapter could not be brought in."))
            await self._audit()
        else:
            swap = record.swap
            metrics.swapped(swap.state, fetch_ms=record.fetch_ms, load_ms=swap.load_ms, activate_ms=swap.activate_ms)
            self._slots.entered(ref.int_id, time.monotonic())
            self._waiting.share(record, ref.int_id, begun_s, time.monotonic())
            if record.swap.residency is not None:
                await self._compare(record.swap.residency)

    def _freed(self, adapter: int) -> None:
        self._slots.left(adapter)
        self._waiting.lost_slot(adapter, time.monotonic())

    def _blame(self, ref: AdapterRef, error: AdapterLoadFailed) -> None:
        """Count it against the adapter, unless the store has lost its files: that is the installation's fault."""
        waiting = self._waiting.of_adapter(ref.int_id)
        if waiting and not isinstance(error, AdapterFilesLost):
            self._endings.blame(waiting[0], error.message)

    def _fail(self, adapter: int, ending: Ending) -> None:
        for job in self._waiting.of_adapter(adapter):
            self._waiting.take(job.job_id)
            self._endings.end(job, ending)

    async def _audit(self) -> None:
        await self._compare(await self._loader.residency())

    async def _compare(self, found: Residency) -> None:
        """The engine is right. A difference stops admission, is mended and counted."""
        self.audit_due = False
        self._audited_at_s = time.monotonic()
        self.step_time_loads = found.step_time_loads
        wrong = self._slots.differs(found.slots)
        if not wrong:
            return
        self.differences += 1
        _log.error("the slots are not what they should be; mending", adapters=sorted(wrong))
        self.mending = True
        try:
            await self._owner.clear_out(wrong)
            self._slots.adopt((await self._loader.residency()).slots, time.monotonic())
        finally:
            self.mending = False
