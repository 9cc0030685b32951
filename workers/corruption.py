"""Corrupted output is never delivered: the KV cache is scrubbed and the job runs again, alone and on a clean cache.

vLLM recycles KV blocks without zeroing them, so the flag is also true on innocent neighbours: only an adapter that
corrupts again on a scrubbed cache is quarantined.
"""

from __future__ import annotations

import asyncio

from registry.errors import EngineDead, EngineError, OutputCorrupted
from registry.logs import get_logger
from workers.generation import Engine
from workers.held import HeldJob
from workers.settle import Writer

SCRUB_AGAIN_S = 0.01
SCRUB_TRIES = 500
"""Five seconds: an aborted request is gone after one step."""
MAX_CORRUPTIONS = 2
OVERFLOWS = "The adapter's numbers overflow even on a clean cache; push a sound version."
OVERFLOWS_BARE = "The base model's numbers overflow on this document even on a clean cache; change the document."

_log = get_logger("corruption")


class Corruption:
    """What to do about one engine's corrupted outputs."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._engine = engine
        self._writer = writer
        self.scrub_due = False

    def verdict(self, job: HeldJob) -> OutputCorrupted | None:
        """Note a corrupted output: the job's end, or None when it is to run again, alone."""
        job.corruptions += 1
        self.scrub_due = True
        if job.corruptions < MAX_CORRUPTIONS:
            return None
        return OutputCorrupted(OVERFLOWS if job.claimed.adapter is not None else OVERFLOWS_BARE)

    async def quarantine(self, job: HeldJob) -> bool:
        """Take the job's adapter out of service and fail its open jobs. False: there is none, or it did not work."""
        adapter = job.claimed.adapter
        if adapter is None:
            return False
        _log.error("an adapter is quarantined: it corrupts outputs on a clean cache", adapter=adapter.adapter_id)
        written = self._writer.quarantine(job.job_id, job.claimed.tenant_id, adapter, OVERFLOWS)
        answer: bool | None = await asyncio.wrap_future(written)
        return bool(answer)

    async def scrub(self) -> None:
        """Zero the KV cache; nothing may be running. Raises EngineDead, or EngineError if the engine will not."""
        for tries_left in range(SCRUB_TRIES, -1, -1):
            try:
                await self._engine.scrub()
            except EngineDead:
                raise
            except EngineError:  # an aborted request is still in its last step
                if not tries_left:
                    raise
                await asyncio.sleep(SCRUB_AGAIN_S)
            else:
                self.scrub_due = False
                _log.warning("corrupted output was withheld and the KV cache scrubbed")
                return
