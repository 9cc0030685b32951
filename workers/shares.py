"""Whose the engine's time was: every moment is split among the jobs that are in it, so that the bill sums to the clock.

vLLM gives each running request a token in each step, so equal parts of a moment are parts by tokens of a step.
"""

from __future__ import annotations


class Shares:
    """For one engine. Moments are monotonic seconds and never go back."""

    def __init__(self) -> None:
        self._live = 0
        self._moment_s = 0.0
        self._share_s = 0.0

    def enter(self, now_s: float) -> float:
        """A job enters the engine. Its mark, to leave with."""
        self._advance(now_s)
        self._live += 1
        return self._share_s

    def leave(self, now_s: float, mark_s: float) -> float:
        """The job leaves: its part of the engine's time, in ms."""
        self._advance(now_s)
        self._live -= 1
        return (self._share_s - mark_s) * 1000

    def _advance(self, now_s: float) -> None:
        if self._live:
            self._share_s += (now_s - self._moment_s) / self._live
        self._moment_s = now_s
