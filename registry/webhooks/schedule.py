"""When a delivery is tried again: pure, from what happened to what follows. Waits in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
WAITS_S: Final = (
    5.0,
    5 * MINUTE_S,
    30 * MINUTE_S,
    2 * HOUR_S,
    5 * HOUR_S,
    10 * HOUR_S,
    14 * HOUR_S,
    20 * HOUR_S,
    24 * HOUR_S,
)
"""After the first failure, the second, ...: ten attempts over 75 h 35 min."""
JITTER: Final = 0.2
LONGEST_RETRY_AFTER_S: Final = 24 * HOUR_S
DISABLE_AFTER_S: Final = 5 * 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class Answer:
    """How one attempt ended: a status code, or a reason why there is none. Never a word of what the receiver said."""

    code: int | None
    reason: str | None
    latency_ms: float
    retry_after_s: float | None = None

    @property
    def accepted(self) -> bool:
        """2xx and nothing else; a redirect is a failure."""
        return self.code is not None and 200 <= self.code < 300


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from an answer. `gone`: the receiver wants nothing more, ever."""

    state: Literal["delivered", "pending", "exhausted"]
    wait_s: float = 0.0
    gone: bool = False


def judge(answer: Answer, failures: int, luck: float) -> Verdict:
    """`failures`: how often this delivery has failed before. `luck` in [-1, 1] places the wait within the jitter."""
    if answer.accepted:
        return Verdict("delivered")
    if answer.code == 410:
        return Verdict("exhausted", gone=True)
    if failures >= len(WAITS_S):
        return Verdict("exhausted")
    wait_s = WAITS_S[failures] * (1 + JITTER * luck)
    asked_s = min(answer.retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
    return Verdict("pending", max(wait_s, asked_s))
