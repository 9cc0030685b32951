"""Writing how held jobs ended, and telling whoever waits for them once it is written."""

from __future__ import annotations

import time
from concurrent.futures import Future

from registry.errors import GenerationFailed
from workers import outcomes
from workers.generation import Generated
from workers.held import HeldJob
from workers.outcomes import Ending, HandBack
from workers.settle import Writer
from workers.swaps import SwapHistory


class Endings:
    """One way out for every job, whatever happened to it."""

    def __init__(self, writer: Writer, history: SwapHistory) -> None:
        self._writer = writer
        self._history = history

    def end(self, job: HeldJob, ending: Ending) -> None:
        """Turn an ending into a write; `job.done` is set after its commit, at once when nothing is to be written."""
        now_s = time.monotonic()
        stalled_ms = self._history.stalled_ms(job.adapter_id, job.admitted_at_s, now_s)
        written = outcomes.conclude(job, ending, now_s=now_s, stalled_ms=stalled_ms)
        future: Future[bool | None]
        if written is None:
            job.done.set_result(None)
            return
        if isinstance(written, HandBack):
            future = self._writer.hand_back(job.job_id, job.claimed.fence, retried=written.retried)
        else:
            future = self._writer.settle(written)
        future.add_done_callback(lambda answer: self._written(job, ending, answer.result()))

    def _written(self, job: HeldJob, ending: Ending, answer: bool | None) -> None:
        if answer is None and isinstance(ending, Generated):
            # The database refused this very result: the job must end all the same, or it would run for ever.
            self.end(job, GenerationFailed("The registry could not store the result; change the request."))
        else:
            job.done.set_result(None)
