"""Jobs inside the engine, each from its admission to how it ended; how much room they leave for others.

Whatever happens to a run, `ended` is called once for it: no defect may keep a job's slot and thread for ever.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Collection

from registry import metrics
from registry.errors import EngineError, GenerationFailed, LorryError
from registry.logs import get_logger
from workers.corruption import Corruption
from workers.generation import Engine
from workers.held import HeldJob
from workers.outcomes import Ending, Gone, HandBack
from workers.policy import ENDLESS, Room
from workers.settle import Writer
from workers.shares import Shares

STEPS_AHEAD = 2
"""How many steps' prompts may wait in the engine: enough that no step runs short, and the rest stays ours to order."""

_log = get_logger("runs")


class Runs:
    """On the engine's loop only. `ended(job, ending)` is called when a job is out of the engine."""

    def __init__(
        self, engine: Engine, writer: Writer, corruption: Corruption, ended: Callable[[HeldJob, Ending], None]
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._corruption = corruption
        self._ended = ended
        self._jobs: dict[uuid.UUID, tuple[HeldJob, asyncio.Task[None]]] = {}
        self._stopping: dict[uuid.UUID, Ending] = {}
        self._tokens = 0
        self._entering_tokens = 0
        self._shares = Shares()
        self.contradicted = False
        """The engine refused what our books allow."""

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def ids(self) -> set[uuid.UUID]:
        """Ids of all live jobs."""
        return set(self._jobs)

    @property
    def one_is_alone(self) -> bool:
        """Whether a live job must stay alone."""
        return any(job.alone for job, _ in self._jobs.values())

    def of_adapters(self, adapters: Collection[int]) -> list[uuid.UUID]:
        """Live jobs of these adapters."""
        return [job.job_id for job, _ in self._jobs.values() if job.adapter_id in adapters]

    def room(self) -> Room:
        """Tokens that the engine can still take."""
        capacity = self._engine.capacity
        prompts = self._engine.prefilling_tokens + self._entering_tokens
        return Room(
            ENDLESS.tokens if capacity.kv_tokens is None else capacity.kv_tokens - self._tokens,
            ENDLESS.tokens if capacity.batched_tokens is None else STEPS_AHEAD * capacity.batched_tokens - prompts,
        )

    def begin(self, job: HeldJob, reason: str) -> None:
        """Give a job to the engine."""
        in_hand_ms = (job.admitted_at_s - job.held_at_s) * 1000
        metrics.waited(queued_ms=job.claimed.queued_ms, held_ms=in_hand_ms - job.swap_wait_ms, swap_ms=job.swap_wait_ms)
        self._tokens += job.tokens
        self._entering_tokens += job.prompt_tokens
        job.share_mark_s = self._shares.enter(time.monotonic())
        self._jobs[job.job_id] = job, asyncio.ensure_future(self._run(job, reason))

    def stop(self, job_id: uuid.UUID, ending: Ending) -> None:
        """Abort a live job; it ends so. A second call only changes how: another cancel would break into the abort."""
        if job_id in self._jobs:
            if job_id not in self._stopping:
                # Not at once: a task that is cancelled before its first step never runs, and the job would never end.
                self._engine.loop.call_soon(self._jobs[job_id][1].cancel)
            self._stopping[job_id] = ending

    async def wait(self, job_ids: Collection[uuid.UUID], timeout_s: float | None = None) -> None:
        """Until these have ended."""
        tasks = [self._jobs[job_id][1] for job_id in job_ids if job_id in self._jobs]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def _run(self, job: HeldJob, reason: str) -> None:
        ending: Ending
        entering_tokens = job.prompt_tokens
        try:
            started = await asyncio.wrap_future(self._writer.start(job.job_id, job.claimed.fence, reason))
            if started and job.corruptions:
                await self._corruption.scrub()  # it is alone: what it meets from here on is its own
            self._entering_tokens -= entering_tokens
            entering_tokens = 0
            ending = await self._engine.generate(job.generation) if started else Gone()
        except asyncio.CancelledError:
            ending = HandBack()
        except LorryError as error:
            self.contradicted |= type(error) is EngineError
            ending = GenerationFailed(error.message) if type(error) is EngineError else error
        except Exception as error:  # noqa: BLE001 - whatever it is, the job ends
            _log.error("a job's run broke off", job=str(job.job_id), error=type(error).__name__)
            ending = GenerationFailed("The engine lost this request.")
        self._entering_tokens -= entering_tokens
        self._tokens -= job.tokens
        job.engine_ms += self._shares.leave(time.monotonic(), job.share_mark_s)
        del self._jobs[job.job_id]
        self._ended(job, self._stopping.pop(job.job_id, ending))
