"""Ends jobs as they come, in place of dispatcher and worker: for tests of those who wait for them."""

from __future__ import annotations

import threading
from types import TracebackType

from registry import transitions
from registry.transitions import Outcome
from tests.world import World

TIMING = {
    "queued_ms": 1.0,
    "held_ms": 0.0,
    "swap": None,
    "prefill_ms": 1.0,
    "decode_ms": 1.0,
    "running_batch": {"jobs": 1, "adapters": 0},
}


class Finisher:
    """A thread that picks, claims and settles whatever is queued. `error_code`: jobs fail with it instead."""

    def __init__(self, world: World, *, error_code: str | None = None) -> None:
        self._world = world
        self._error_code = error_code
        self._stop = threading.Event()
        self._worker = world.worker()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            picked = self._world.pick()
            claimed = self._world.claim(self._worker, picked)
            with self._world.db.transaction() as session:
                transitions.settle(session, [self._outcome(job) for job in claimed])

    def _outcome(self, job: transitions.Claimed) -> Outcome:
        if self._error_code is not None:
            return Outcome(job.job_id, job.fence, "failed", error_code=self._error_code, error_message="It failed.")
        return Outcome(
            job.job_id,
            job.fence,
            "succeeded",
            text="네, 요약입니다.",
            finish_reason="stop",
            prompt_tokens=12,
            output_tokens=5,
            timing=TIMING,
        )

    def __enter__(self) -> Finisher:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(10)
