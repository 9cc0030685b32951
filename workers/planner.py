"""The planner: takes held jobs, asks `policy` what to do, and has it done: admissions, swaps, hand-backs.

Everything here runs on the engine's loop, so there are no locks; other threads come in through `hold`, `abandon`,
`drain`, `foresee` and `resume`. No adapter is ever loaded in an engine step: first the swap, then the jobs.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from registry import metrics
from registry.errors import EngineDead
from registry.logs import get_logger
from registry.presence import Beat
from registry.store import Store
from workers import policy
from workers.corruption import Corruption
from workers.endings import Endings
from workers.engine_work import EngineWork
from workers.explainer import Explainer
from workers.generation import Engine, Generated
from workers.held import HeldJob, WaitingRoom
from workers.judge import Judge
from workers.loader import Loader
from workers.outcomes import Ending, Gone, HandBack
from workers.runs import Runs
from workers.settle import Writer
from workers.slots import Slots, SlotsBroken

LOOK_AGAIN_S = 0.05
"""Waiting makes decisions due: while jobs wait, the policy is asked at least this often."""
MAX_DEFECTS = 3
"""Looks in a row that may break off before all waiting jobs are handed back: no defect may hold a job for ever."""

_log = get_logger("planner")


class Planner:
    """One engine's jobs. `on_dead` is called once, on the loop, when the engine has died."""

    def __init__(
        self, engine: Engine, rules: policy.Rules, store: Store, writer: Writer, on_dead: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._on_dead = on_dead
        self._waiting = WaitingRoom()
        self._slots = Slots(rules.max_loras)
        self._loader = Loader(engine, store, self._waiting.next_turns)
        self._endings = Endings(writer, self._loader.history)
        self._corruption = Corruption(engine, writer)
        self._runs = Runs(engine, writer, self._corruption, self._ended)
        self._work = EngineWork(self, self._loader, self._slots, self._waiting, self._corruption, self._endings)
        self._explainer = Explainer(writer)
        self._quarantining: asyncio.Task[None] | None = None
        self._look_again: asyncio.TimerHandle | None = None
        self._judge = Judge(rules, self._waiting, self._slots, self._runs, self._loader, self._work)
        self._defects = 0
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

    def foresee(self, backlog: Mapping[int, int]) -> None:
        """What the backlog needs next of the adapters in `known_adapters`."""
        self._loader.backlog = backlog

    @property
    def known_adapters(self) -> frozenset[int]:
        """Adapters in slots or in host memory."""
        return self._loader.known

    def held_ids(self) -> set[uuid.UUID]:
        """Ids of all held jobs, waiting and live."""
        return {job.job_id for job in self._waiting} | self._runs.ids

    def report(self) -> Beat:
        """What the worker's row says of this planner."""
        residency = {
            "slots": sorted(self._slots.resident),
            "live_adapters": self._slots.live_adapters,
            "step_time_loads": self._work.step_time_loads,
            "differences": self._work.differences,
        }
        return Beat(len(self._waiting) + len(self._runs), len(self._runs), residency)

    # ---- on the loop

    def _add(self, job: HeldJob) -> None:
        if self._closing or self._broken:
            self._endings.end(job, HandBack())
            return
        self._waiting.add(job)
        self.look()

    def look(self) -> None:
        """Do everything that can be done now, and look again soon while anything waits, whatever happens."""
        try:
            self._do_what_is_due()
            self._defects = 0
        except Exception as error:  # noqa: BLE001 - a defect must not end the looking: jobs would hang
            _log.error("the planner stumbled", error=type(error).__name__)
            self._work.audit_due = True
            self._defects += 1
            if self._defects >= MAX_DEFECTS:
                self._stop_jobs([job.job_id for job in self._waiting], HandBack())
        if len(self._waiting) and self._look_again is None:
            self._look_again = self._engine.loop.call_later(LOOK_AGAIN_S, self._timed_look)

    def _timed_look(self) -> None:
        self._look_again = None
        self.look()

    def _do_what_is_due(self) -> None:
        while not self._halted and (decision := self._judge.decide()) is not None:
            metrics.DECISIONS.labels(type(decision).__name__, decision.reason).inc()
            match decision:
                case policy.Admit():
                    self._admit(decision)
                case policy.SwapIn():
                    self._work.swap(decision)
                case policy.GiveBack(adapter):
                    self._stop_jobs([job.job_id for job in self._waiting.of_adapter(adapter)], HandBack())
        now_s = time.monotonic()
        self._work.audit_due |= self._runs.contradicted
        self._runs.contradicted = False
        if not (self._broken or self._work.busy):
            if self._corruption.scrub_due and not len(self._runs):
                self._work.scrub()
            elif len(self._runs) or self._work.audit_due:
                self._work.audit_if_due(now_s)
        if not self._halted:
            self._read_ahead()
        self._explainer.tell(self._waiting, self._judge.reasons, now_s)

    @property
    def _halted(self) -> bool:
        return self._broken or self._corruption.scrub_due or self._work.mending

    def _read_ahead(self) -> None:
        """What comes next is read while the batch runs; what nobody waits for any more is forgotten."""
        ahead = self._loader.ahead
        if ahead is not None:
            if not self._waiting.of_adapter(ahead):
                self._loader.forget_ahead()
            return
        if (wanted := self._judge.next_load()) != policy.BASE:
            self._loader.read_ahead(*self._waiting.adapter_ref(wanted))

    def _admit(self, decision: policy.Admit) -> None:
        assert isinstance(decision.job, uuid.UUID)
        now_s = time.monotonic()
        job = self._waiting.take(decision.job)
        assert job is not None
        try:
            self._slots.admit(decision.adapter, now_s)
        except SlotsBroken:
            self._waiting.add(job)  # until the books are mended
            raise
        job.admitted_at_s = now_s
        job.batch_jobs, job.batch_adapters = self._slots.live, self._slots.live_adapters
        self._runs.begin(job, decision.reason)

    def _ended(self, job: HeldJob, ending: Ending) -> None:
        """A job is out of the engine."""
        try:
            self._slots.release(job.adapter_id, time.monotonic())
        except (SlotsBroken, KeyError):
            _log.error("a job left a slot that the book does not have", adapter=job.adapter_id)
            self._work.audit_due = True
        if isinstance(ending, Generated) and ending.corrupted:
            self._withhold(job)
        else:
            self._endings.end(job, ending)
        if isinstance(ending, EngineDead):
            self.engine_died()
        self.look()

    def _withhold(self, job: HeldJob) -> None:
        final = self._corruption.verdict(job)
        if final is not None:
            self._endings.end(job, final)
            self._quarantining = asyncio.ensure_future(self._quarantine(job))
        elif self._closing:
            self._endings.end(job, HandBack())
        else:
            self._waiting.add(job)

    async def _quarantine(self, job: HeldJob) -> None:
        if await self._corruption.quarantine(job):
            waiting = [other.job_id for other in self._waiting.of_adapter(job.adapter_id)]
            self._stop_jobs([*waiting, *self._runs.of_adapters({job.adapter_id})], Gone())

    def _stop_jobs(self, job_ids: Iterable[uuid.UUID], ending: Ending) -> None:
        for job_id in job_ids:
            if (waiting := self._waiting.take(job_id)) is not None:
                self._endings.end(waiting, ending)
            else:
                self._runs.stop(job_id, ending)

    async def clear_out(self, adapters: frozenset[int]) -> None:
        """Hand back the live jobs of these adapters and wait until they are out of the engine."""
        jobs = self._runs.of_adapters(adapters)
        self._stop_jobs(jobs, HandBack())
        await self._runs.wait(jobs)

    async def _drain(self, grace_s: float) -> None:
        self._closing = True
        self._stop_jobs([job.job_id for job in self._waiting], HandBack())
        await self._runs.wait(self._runs.ids, grace_s)
        self._stop_jobs(self._runs.ids, HandBack())
        await self._runs.wait(self._runs.ids)

    def engine_died(self) -> None:
        """Hand everything back, and what comes until the engine's next start as well: others may run it."""
        if self._broken:
            return
        self._broken = True
        _log.error("the engine died; its jobs are handed back")
        self._stop_jobs([job.job_id for job in self._waiting], HandBack())
        self._stop_jobs(self._runs.ids, EngineDead("The engine died while this job was in it."))
        self._work.stop()
        self._on_dead()

    async def _reset(self) -> None:
        await self._runs.wait(self._runs.ids)  # nothing of the old engine may meet the new one's books
        if self._work.task is not None:
            await asyncio.wait([self._work.task])
        self._slots.clear()
        self._loader.reset()
        self._work.reset()
        self._corruption.scrub_due = self._broken = False
        self.look()
