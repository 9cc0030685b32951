"""Every change of a job's state: one named function each, one guarded UPDATE each. Zero rows means: it has moved on.

The first arrow, queued -> dispatched, is the pick: `registry.backlog.pick`.
"""

from registry.transitions.back import (
    ALONE_CRASHES,
    MAX_CRASHES,
    Spends,
    hand_back,
    let_go,
    message_lost,
    rescue,
    unsend,
)
from registry.transitions.claim import Claimed, ClaimedAdapter, claim, start
from registry.transitions.ends import cancel, cancel_lines, expire, fail_unavailable
from registry.transitions.parts import Division, divide, end_with_parts, release, sweep
from registry.transitions.settle import Outcome, settle

__all__ = [
    "ALONE_CRASHES",
    "MAX_CRASHES",
    "Claimed",
    "ClaimedAdapter",
    "Division",
    "Outcome",
    "Spends",
    "cancel",
    "cancel_lines",
    "claim",
    "divide",
    "end_with_parts",
    "expire",
    "fail_unavailable",
    "hand_back",
    "let_go",
    "message_lost",
    "release",
    "rescue",
    "settle",
    "start",
    "sweep",
    "unsend",
]
