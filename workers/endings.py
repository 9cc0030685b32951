"""Writing how held jobs ended, and telling whoever waits for them once it is written."""

from __future__ import annotations

import time
from concurrent.futures import Future

from registry.errors import GenerationFailed
from registry.logs import get_logger
from workers import outcomes
from workers.generation import Generated
from workers.held import HeldJob
from workers.outcomes import Ending, HandBack
from workers.settle import Writer
from workers.swaps import SwapHistory

_log = get_logger("endings")


class Endings:
    """One way out for every job, whatever happened to it."""

    def __init__(self, writer: Writer, history: SwapHistory) -> None:
        self._writer = writer
        self._history = history

    def end(self, job: HeldJob, ending: Ending) -> None:
        """Turn an ending into a write; `job.done` is set after its commit, at once when nothing is to be written."""
        stalled_ms = self._history.stalled_ms(job.adapter_id, job.admitted_at_s, time.monotonic())
        try:
            written = outcomes.conclude(job, ending, stalled_ms=stalled_ms)
        except Exception as error:  # noqa: BLE001 - a defect here must not leave a job without an ending
            _log.error("an outcome could not be made", job=str(job.job_id), error=type(error).__name__)
            written = outcomes.failed(job.job_id, job.claimed.fence, GenerationFailed("The result was lost."))
        future: Future[bool | None]
        if written is None:
            job.done.set_result(None)
            return
        if isinstance(written, HandBack):
            future = self._writer.hand_back(job.job_id, job.claimed.fence, written.spends)
        else:
            future = self._writer.settle(written)
        future.add_done_callback(lambda answer: self._written(job, ending, answer.result()))

    def blame(self, job: HeldJob, reason: str) -> None:
        """The engine refused this job's adapter: too often, and it is quarantined."""
        self._writer.blame(job.job_id, job.claimed.tenant_id, job.adapter_id, reason)

    def _written(self, job: HeldJob, ending: Ending, answer: bool | None) -> None:
        if answer is None and isinstance(ending, Generated):
            # The database refused this very result: the job must end all the same, or it would run for ever.
            self.end(job, GenerationFailed("The registry could not store the result; change the request."))
        else:
            job.done.set_result(None)
