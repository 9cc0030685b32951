"""The planner: takes held jobs, asks `policy` what to do, and does it: admits, swaps, drains.

Everything here runs on the engine's loop, so there are no locks; other threads come in through `hold`, `abandon`,
`drain` and `resume`. No adapter is ever loaded in an engine step: first the swap, then the jobs.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable

from registry.errors import AdapterLoadFailed, EngineDead, EngineError, GenerationFailed, LorryError, OutputCorrupted
from registry.logs import get_logger
from registry.presence import Beat
from registry.store import Store
from workers import policy
from workers.endings import Endings
from workers.generation import AdapterRef, Engine, Generated
from workers.held import HeldJob, WaitingRoom
from workers.loader import Loader
from workers.outcomes import Ending, Gone, HandBack
from workers.settle import Writer
from workers.slots import Slots

LOOK_AGAIN_S = 0.05
"""Waiting makes decisions due: while jobs wait, the policy is asked at least this often."""
SCRUB_AGAIN_S = 0.01
MAX_CORRUPTIONS = 2
_OVERFLOWS = "The adapter's numbers overflow even on a clean cache; push a sound version."

_log = get_logger("planner")


class Planner:
    """One engine's jobs. `on_dead` is called once, on the loop, when the engine has died."""

    def __init__(
        self, engine: Engine, rules: policy.Rules, store: Store, writer: Writer, on_dead: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._rules = rules
        self._loader = Loader(engine, store)
        self._endings = Endings(writer, self._loader.history)
        self._writer = writer
        self._on_dead = on_dead
        self._waiting = WaitingRoom()
        self._live: dict[uuid.UUID, tuple[HeldJob, asyncio.Task[None]]] = {}
        self._slots = Slots(rules.max_loras)
        self._stopping: dict[uuid.UUID, Ending] = {}
        self._loading: asyncio.Task[None] | None = None
        self._loading_adapter: int | None = None
        self._look_again: asyncio.TimerHandle | None = None
        self._scrub_due = False
        self._broken = False
        self._closing = False

    # ---- from other threads

    def hold(self, job: HeldJob) -> None:
        """Take a claimed job; `job.done` is set when its ending is written."""
        self._engine.loop.call_soon_threadsafe(self._add, job)

    def abandon(self, job_ids: Iterable[uuid.UUID]) -> None:
        """Stop jobs that are cancelled or not ours any more: free the engine, write nothing."""
        self._engine.loop.call_soon_threadsafe(self._stop_jobs, list(job_ids), Gone())

    def drain(self, grace_s: float) -> None:
        """Hand back what waits, let live jobs finish for `grace_s`, hand back the rest. Blocks until all have ended."""
        asyncio.run_coroutine_threadsafe(self._drain(grace_s), self._engine.loop).result()

    def resume(self) -> None:
        """The engine has been started again."""
        asyncio.run_coroutine_threadsafe(self._reset(), self._engine.loop).result()

    def held_ids(self) -> set[uuid.UUID]:
        """Ids of all held jobs, waiting and live."""
        return {job.job_id for job in self._waiting} | set(self._live)

    def report(self) -> Beat:
        """What the worker's row says of this planner."""
        held, live = len(self._waiting) + len(self._live), len(self._live)
        return Beat(held, live, {"slots": sorted(self._slots.resident)})

    # ---- on the loop

    def _add(self, job: HeldJob) -> None:
        if self._closing:
            self._endings.end(job, HandBack())
            return
        self._waiting.add(job)
        self._pump()

    def _pump(self) -> None:
        """Do everything that can be done now."""
        while not (self._broken or self._scrub_due) and (decision := self._decide()) is not None:
            match decision:
                case policy.Admit():
                    self._admit(decision)
                case policy.SwapIn():
                    self._begin_swap(decision)
        if self._scrub_due and not self._live and self._loading is None and not self._broken:
            self._loading = asyncio.ensure_future(self._scrub())
        if len(self._waiting) and self._look_again is None:
            self._look_again = self._engine.loop.call_later(LOOK_AGAIN_S, self._pump_again)

    def _pump_again(self) -> None:
        self._look_again = None
        self._pump()

    def _decide(self) -> policy.Decision | None:
        now_s = time.monotonic()
        heads = self._waiting.heads(now_s)
        slots = self._slots.views(now_s, self._waiting.next_turns())
        alone = any(job.alone for job, _ in self._live.values())
        return policy.decide(heads, slots, self._slots.live, self._rules, loading=self._loading_adapter, alone=alone)

    def _admit(self, decision: policy.Admit) -> None:
        assert isinstance(decision.job, uuid.UUID)
        job = self._waiting.take(decision.job)
        assert job is not None
        job.admitted_at_s = time.monotonic()
        self._slots.admit(job.adapter_id, job.admitted_at_s)
        job.batch_jobs, job.batch_adapters = self._slots.live, self._slots.live_adapters
        self._live[job.job_id] = job, asyncio.ensure_future(self._run(job))

    async def _run(self, job: HeldJob) -> None:
        """One job through the engine, to its ending."""
        ending: Ending
        try:
            started = await asyncio.wrap_future(self._writer.start(job.job_id, job.claimed.fence))
            ending = await self._engine.generate(job.generation) if started else Gone()
        except asyncio.CancelledError:
            ending = HandBack()
        except LorryError as error:
            ending = error
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not keep the job's slot and thread for ever
            _log.error("a job's run broke off", job=str(job.job_id), error=type(error).__name__)
            ending = GenerationFailed("The engine lost this request.")
        ending = self._stopping.pop(job.job_id, ending)
        del self._live[job.job_id]
        self._slots.release(job.adapter_id, time.monotonic())
        if isinstance(ending, Generated) and ending.corrupted:
            self._run_again_alone(job)
        else:
            self._endings.end(job, ending)
        if isinstance(ending, EngineDead):
            self._engine_died()
        self._pump()

    def _run_again_alone(self, job: HeldJob) -> None:
        """Corrupted output is never delivered: scrub the KV cache, then run the job with nobody beside it."""
        job.corruptions += 1
        self._scrub_due = True
        if job.corruptions >= MAX_CORRUPTIONS:
            self._endings.end(job, OutputCorrupted(_OVERFLOWS))
        elif self._closing:
            self._endings.end(job, HandBack())
        else:
            self._waiting.add(job)

    async def _scrub(self) -> None:
        try:
            await self._engine.scrub()
            self._scrub_due = False
            _log.warning("corrupted output was withheld and the KV cache scrubbed")
        except EngineDead:
            self._engine_died()
        except EngineError:  # an aborted request is still in its last step
            await asyncio.sleep(SCRUB_AGAIN_S)
        finally:
            self._loading = None
            self._pump()

    def _begin_swap(self, decision: policy.SwapIn) -> None:
        self._slots.leaves(decision.evict)
        self._loading_adapter = decision.adapter
        ref = self._waiting.adapter_ref(decision.adapter)
        adapter = self._waiting.of_adapter(decision.adapter)[0].claimed.adapter
        assert adapter is not None
        self._loading = asyncio.ensure_future(self._swap(ref, adapter.digest, decision.evict))

    async def _swap(self, ref: AdapterRef, digest: str, evict: int | None) -> None:
        begun_s = time.monotonic()
        try:
            record = await self._loader.swap(ref, digest, evict, self._freed)
        except EngineDead:
            self._engine_died()
        except LorryError as error:
            self._load_failed(ref, error)
        else:
            self._slots.entered(ref.int_id, time.monotonic())
            self._waiting.share(record, ref.int_id, begun_s, time.monotonic())
        finally:
            self._loading = self._loading_adapter = None
            self._slots.leaves(None)
            self._pump()

    def _freed(self, adapter: int) -> None:
        self._slots.left(adapter)
        self._waiting.lost_slot(adapter, time.monotonic())

    def _load_failed(self, ref: AdapterRef, error: LorryError) -> None:
        _log.warning("an adapter could not be loaded; its jobs fail", adapter=ref.name, error=type(error).__name__)
        failure = AdapterLoadFailed(f"The adapter could not be loaded: {error.message}")
        for job in self._waiting.of_adapter(ref.int_id):
            self._waiting.take(job.job_id)
            self._endings.end(job, failure)

    def _stop_jobs(self, job_ids: list[uuid.UUID], ending: Ending) -> None:
        for job_id in job_ids:
            waiting = self._waiting.take(job_id)
            if waiting is not None:
                self._endings.end(waiting, ending)
            elif job_id in self._live:
                if job_id not in self._stopping:  # a second cancel would break into the engine's abort
                    self._live[job_id][1].cancel()
                self._stopping[job_id] = ending

    async def _drain(self, grace_s: float) -> None:
        self._closing = True
        self._stop_jobs([job.job_id for job in self._waiting], HandBack())
        tasks = [task for _, task in self._live.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        self._stop_jobs(list(self._live), HandBack())
        if tasks:
            await asyncio.wait(tasks)

    def _engine_died(self) -> None:
        """Hand everything back. What is held from now on waits for the engine's next start."""
        if self._broken:
            return
        self._broken = True
        _log.error("the engine died; its jobs are handed back")
        self._stop_jobs([*(job.job_id for job in self._waiting), *self._live], HandBack())
        if self._loading is not None:
            self._loading.cancel()
        self._on_dead()

    async def _reset(self) -> None:
        tasks = [task for _, task in self._live.values()] + ([self._loading] if self._loading else [])
        if tasks:  # nothing of the old engine may meet the new one's books
            await asyncio.wait(tasks)
        self._slots.clear()
        self._scrub_due = self._broken = False
        self._pump()
