"""The real engine: vLLM's AsyncLLM, one per process, driven from its own loop.

It keeps vLLM's sharp edges inside: no adapter is ever loaded in an engine step (an error there kills everybody's
requests), a failed load is undone, base-model rows stay base-model rows, corrupted outputs are flagged, and no vLLM
process outlives this one. It decides nothing about order or victims: the planner does.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any

from registry.errors import (
    AdapterLoadFailed,
    EngineDead,
    EngineError,
    EngineStartFailed,
    LorryError,
)
from workers.engine_guard import EngineGuard
from workers.engine_loop import EngineLoop
from workers.generation import AdapterRef, Capacity, EngineConfig, Generated, Generation, Residency, Swap
from workers.probe import dialect
from workers.probe.environment import set_environment
from workers.probe.private_names import HOST_NAMES, absent
from workers.probe.watch import is_gone

DEAD_CHECK_S = 1.0
"""How often a waiting RPC looks whether the engine died: vLLM leaves such calls unanswered for ever."""


class VllmEngine:
    """See `workers.generation.Engine`. `start`, `close` and construction belong to threads other than the loop's."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._runner = EngineLoop()
        self._guard = EngineGuard(config)
        self._llm: Any = None
        self._capacity = Capacity()
        self._pids: frozenset[int] = frozenset()
        self._serial = itertools.count()
        self._swaps: set[asyncio.Task[Swap]] = set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._lifecycle = threading.Lock()
        self._at_exit: Any = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of every coroutine here. It outlives `close`, so that a restart finds its callers in place."""
        return self._runner.loop

    def start(self) -> None:
        """Start, or start again after `close`. Blocks for about 10 s on CPU. Raises EngineStartFailed."""
        with self._lifecycle:
            if self._llm is not None:
                raise EngineStartFailed("The engine runs already: close it before starting it again.")
            try:
                set_environment()
                self._runner.call(self._boot())
            except Exception as error:
                self._shut_down(timeout_s=5.0)
                if isinstance(error, LorryError):
                    raise
                raise EngineStartFailed(f"vLLM did not start: {type(error).__name__}: {error}") from error
            # multiprocessing ends its children at exit; by then the engine must have been asked to stop.
            self._at_exit = Finalize(None, self.close, exitpriority=100)

    async def _boot(self) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self._guard = EngineGuard(self.config)
        # Built inside the running loop, so that its readers start at once and an early death is seen.
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**dialect.engine_arguments(self.config)))
        replies = await self._rpc("lorry_install", os.getpid())
        self._pids = frozenset(pid for reply in replies for pid in (reply["pid"], reply["parent_pid"])) - {os.getpid()}
        lacking = sorted({name for reply in replies for name in reply["absent"]} | set(absent(self._llm, HOST_NAMES)))
        if lacking:
            raise EngineStartFailed(
                "This vLLM lacks names that Lorry relies on: " + ", ".join(lacking) + ". Install vLLM 0.32, or teach "
                "workers/probe/private_names.py the new names."
            )
        self._capacity = dialect.capacity(self._llm)

    @property
    def capacity(self) -> Capacity:
        """See `Engine.capacity`."""
        return self._capacity

    @property
    def prefilling_tokens(self) -> int:
        """See `Engine.prefilling_tokens`."""
        return 0 if self._llm is None else int(self._llm.output_processor.get_num_queued_tokens())

    async def stage(self, adapter: AdapterRef, drop: int | None) -> Residency:
        """See `Engine.stage`."""
        replies = await self._rpc("lorry_stage", adapter.name, adapter.int_id, adapter.path, drop)
        return dialect.residency(replies[0])

    async def is_staged(self, int_id: int) -> bool:
        """See `Engine.is_staged`."""
        return all(await self._rpc("lorry_is_staged", int_id))

    async def unstage(self, int_id: int) -> None:
        """See `Engine.unstage`."""
        await self._rpc("lorry_unstage", int_id)

    async def swap_in(self, adapter: AdapterRef, evict: int | None, drop: int | None = None) -> Swap:
        """See `Engine.swap_in`. Not cancellable half-way: a cancelled caller leaves the swap to finish by itself."""
        self._alive()
        if self._guard.is_hot(adapter.int_id):
            now = time.monotonic()
            return Swap("hot", 0.0, 0.0, (), now, now)
        swap = asyncio.ensure_future(self._swap(adapter, evict, drop))
        self._swaps.add(swap)
        swap.add_done_callback(self._swaps.discard)
        return await asyncio.shield(swap)

    async def _swap(self, adapter: AdapterRef, evict: int | None, drop: int | None) -> Swap:
        with self._guard.swapping(adapter, evict):
            replies = await self._rpc("lorry_swap", adapter.name, adapter.int_id, adapter.path, evict, drop)
            error = next((reply["error"] for reply in replies if "error" in reply), None)
            if error is not None and len(replies) > 1:
                replies = await self._rpc("lorry_forget", adapter.int_id)  # the ranks that did load it
            self._guard.slots_are(replies[0]["slots"])
        if error is not None:
            raise AdapterLoadFailed(dialect.without_names(error, adapter))
        if any("full" in reply for reply in replies):
            raise EngineError(f"No slot is free for adapter {adapter.int_id}: name an idle one as `evict`.")
        slowest = max(replies, key=lambda reply: reply["load_ms"] + reply["activate_ms"])
        return Swap(
            state=slowest["state"],
            load_ms=slowest["load_ms"],
            activate_ms=slowest["activate_ms"],
            evicted=tuple(slowest["evicted"]),
            begun_at_s=slowest["begun_at_s"],
            ended_at_s=slowest["ended_at_s"],
            residency=dialect.residency(replies[0]),
        )

    async def generate(self, generation: Generation) -> Generated:
        """See `Engine.generate`."""
        llm = self._alive()
        self._guard.check_generation(generation)
        # vLLM accepts one id twice; ours must be unique, so that an abort hits this request and no other.
        request_id = f"{generation.request_id}#{next(self._serial)}"
        with self._guard.running(generation.adapter):
            call = asyncio.ensure_future(dialect.last_output(llm, generation, request_id))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
            try:
                output = await call
            except asyncio.CancelledError:
                self._alive()  # it was closed
                # vLLM aborts by itself, except when the cancel arrives while the request is being handed over.
                await asyncio.shield(self._abort(llm, request_id))
                raise
            except Exception as error:  # noqa: BLE001 - every failure of vLLM is turned into one of ours
                self._alive()
                raise dialect.refusal(error) from None  # vLLM's own text may quote the prompt
        return dialect.generated(output, llm.get_tokenizer().decode)

    async def _abort(self, llm: Any, request_id: str) -> None:
        with suppress(Exception):  # a dead engine runs nothing
            await llm.abort(request_id)

    async def residency(self) -> Residency:
        """See `Engine.residency`. Raises EngineDead."""
        found = dialect.residency((await self._rpc("lorry_residency"))[0])
        self._guard.slots_are(found.slots)
        return found

    async def live_adapters(self) -> frozenset[int]:
        """See `Engine.live_adapters`. Raises EngineDead."""
        replies = await self._rpc("lorry_live_adapters")
        return self._guard.running_adapters.union(*replies)

    async def scrub(self) -> None:
        """See `Engine.scrub`. Raises EngineError while a request is running, EngineDead."""
        if not self._guard.idle:
            raise EngineError("The KV cache can only be scrubbed with no request running: drain first.")
        await self._rpc("lorry_scrub")
        if not await self._alive().reset_prefix_cache():
            raise EngineError("vLLM kept its prefix cache: some request still holds blocks. Drain and scrub again.")

    def close(self, timeout_s: float = 15.0) -> None:
        """See `Engine.close`. Requests still running end with EngineDead."""
        with self._lifecycle:
            if self._at_exit is not None:
                self._at_exit.cancel()
                self._at_exit = None
            self._shut_down(timeout_s)

    def _shut_down(self, timeout_s: float) -> None:
        llm, self._llm = self._llm, None
        if llm is None:
            return
        with suppress(Exception):
            self._runner.call(self._end_calls(llm), timeout_s=5.0)
        with suppress(Exception):  # of a dead engine some parts are gone already
            llm.shutdown(timeout=timeout_s)
        for pid in self._pids:
            with suppress(ProcessLookupError):  # it may go between the look and the kill
                if not is_gone(pid):
                    os.kill(pid, signal.SIGKILL)
        self._pids = frozenset()

    async def _end_calls(self, llm: Any) -> None:
        with suppress(Exception):
            await dialect.fail_waiting(llm)
        for call in list(self._calls):  # a request that was just being handed over is not among those that vLLM knows
            call.cancel()

    def _alive(self) -> Any:
        llm = self._llm
        if llm is None or llm.errored:
            raise EngineDead("The engine is not running: start it (after `close`, if it died).")
        return llm

    async def _rpc(self, method: str, *args: object) -> list[Any]:
        """One reply per rank. Raises EngineDead, or EngineError if the probe itself failed."""
        llm = self._alive()
        call = asyncio.ensure_future(llm.collective_rpc(method, args=args))
        while not (await asyncio.wait({call}, timeout=DEAD_CHECK_S))[0]:
            if llm.errored:
                call.cancel()
                self._alive()
        error = call.exception()
        if error is None:
            replies: list[Any] = call.result()
            return replies
        self._alive()
        raise EngineError(f"The engine's probe failed in {method} ({type(error).__name__}).") from error
