"""The states of a job and the arrows between them: the one list, mirrored by the database's trigger and the docs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum


class State(StrEnum):
    """A job's state, as stored."""

    QUEUED = "queued"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED})
OPEN = frozenset(State) - TERMINAL

ARROWS: dict[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.DISPATCHED, State.CANCELLED, State.EXPIRED, State.FAILED}),
    State.DISPATCHED: frozenset({State.RUNNING, State.QUEUED, State.CANCELLED, State.EXPIRED, State.FAILED}),
    State.RUNNING: frozenset({State.SUCCEEDED, State.FAILED, State.QUEUED, State.CANCELLED, State.EXPIRED}),
    State.SUCCEEDED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELLED: frozenset(),
    State.EXPIRED: frozenset(),
}


def status_for_tenant(state: str, started_at: datetime | None) -> str:
    """What a tenant reads: queued until the engine has it, then running, then the terminal word."""
    if State(state) in TERMINAL:
        return state
    return "running" if started_at is not None else "queued"
