"""What can be announced. The names are on the wire and in the database's triggers."""

from __future__ import annotations

from typing import Final, Literal

EventType = Literal[
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "job.expired",
    "batch.in_progress",
    "batch.completed",
    "batch.failed",
    "batch.expired",
    "batch.cancelled",
]
EVENT_TYPES: Final[tuple[EventType, ...]] = (
    "job.succeeded",
    "job.failed",
    "job.cancelled",
    "job.expired",
    "batch.in_progress",
    "batch.completed",
    "batch.failed",
    "batch.expired",
    "batch.cancelled",
)
RESULTS: Final = "batch.results"
"""A chunk of a batch's finished lines: sent to endpoints with `deliver: "results"`, not subscribed to by name."""
