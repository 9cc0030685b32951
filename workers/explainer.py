"""Keeps on waiting jobs what they wait for: sparsely, so that explaining costs nothing beside running."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workers.held import WaitingRoom
from workers.settle import Writer

EVERY_S = 1.0
"""A job that waits less is not explained, and its reason changes no oftener."""
MOST = 256
"""Jobs told in one round."""


class Explainer:
    """Called at every look; acts once a second."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._due_s = 0.0

    def tell(self, waiting: WaitingRoom, reasons: Callable[[], Mapping[int, str]], now_s: float) -> None:
        """Write the reason of every job that has waited long enough and was not told it yet."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + EVERY_S
        patient = [job for job in waiting if now_s - job.held_at_s > EVERY_S]
        if not patient:
            return
        words = reasons()
        untold = [job for job in patient if words.get(job.adapter_id, job.told) != job.told]
        for job in untold[:MOST]:
            job.told = words[job.adapter_id]
            self._writer.explain(job.job_id, job.claimed.fence, job.told)
