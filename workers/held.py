"""Held jobs: what a worker has claimed and not yet ended, waiting ones in queues by adapter and turn."""

from __future__ import annotations

import uuid
from bisect import insort
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from registry.transitions import ALONE_CRASHES, Claimed
from workers.generation import AdapterRef, Generation, Swap
from workers.policy import BASE, Head


@dataclass(slots=True, eq=False)
class HeldJob:
    """One claimed job on its way. `done` is set when its ending is written."""

    claimed: Claimed
    generation: Generation
    held_at_s: float
    done: Future[None] = field(default_factory=Future)
    admitted_at_s: float = 0.0
    swap: SwapRecord | None = None
    swap_wait_ms: float = 0.0
    batch_jobs: int = 0
    batch_adapters: int = 0
    corruptions: int = 0
    share_mark_s: float = 0.0
    engine_ms: float = 0.0
    """Its part of the time that it was in the engine with others."""
    overflow: dict[str, Any] | None = None
    """What was done to its document to make it fit."""
    told: str | None = None
    """The reason for waiting that was last written to its row."""

    @property
    def job_id(self) -> uuid.UUID:
        """The job's id."""
        return self.claimed.job_id

    @property
    def adapter_id(self) -> int:
        """The adapter's integer id, BASE for the bare base."""
        adapter = self.generation.adapter
        return BASE if adapter is None else adapter.int_id

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.generation.prompt_token_ids)

    @property
    def tokens(self) -> int:
        """Prompt and expected output, by the adapter's own history; at most what the job may write."""
        most, expected = self.generation.sampling.max_tokens, self.claimed.expected_output
        return self.prompt_tokens + (most if expected is None else min(most, ceil(expected)))

    @property
    def alone(self) -> bool:
        """Whether this job is suspected of killing a worker or of corrupting others' outputs."""
        return self.claimed.crashes >= ALONE_CRASHES or self.corruptions > 0


@dataclass(slots=True)
class SwapRecord:
    """A swap as its jobs report it."""

    swap: Swap
    fetch_ms: float
    evicted: str | None
    shared_by: int = 0


class WaitingRoom:
    """Jobs not yet in the engine: one queue an adapter, each in the order of turns."""

    def __init__(self) -> None:
        self._queues: dict[int, deque[HeldJob]] = {}
        self._jobs: dict[uuid.UUID, HeldJob] = {}
        self._slotless_from_s: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[HeldJob]:
        return iter(list(self._jobs.values()))

    def add(self, job: HeldJob) -> None:
        """Put a job in its place: turns mostly arrive in order, but hand-backs and retries do not."""
        queue = self._queues.setdefault(job.adapter_id, deque())
        self._slotless_from_s.setdefault(job.adapter_id, job.held_at_s)
        if queue and queue[-1].claimed.turn > job.claimed.turn:
            insort(queue, job, key=lambda held: held.claimed.turn)
        else:
            queue.append(job)
        self._jobs[job.job_id] = job

    def take(self, job_id: uuid.UUID) -> HeldJob | None:
        """Remove a job; None when it does not wait here."""
        job = self._jobs.pop(job_id, None)
        if job is not None:
            queue = self._queues[job.adapter_id]
            queue.remove(job)
            if not queue:
                del self._queues[job.adapter_id], self._slotless_from_s[job.adapter_id]
        return job

    def lost_slot(self, adapter_id: int, now_s: float) -> None:
        """An adapter that gave its slot up begins to wait anew, behind those that wait already."""
        if adapter_id in self._queues:
            self._slotless_from_s[adapter_id] = now_s

    def of_adapter(self, adapter_id: int) -> list[HeldJob]:
        """The waiting jobs of one adapter, oldest first."""
        return list(self._queues.get(adapter_id, ()))

    def share(self, record: SwapRecord, adapter_id: int, begun_s: float, now_s: float) -> None:
        """Every job that waits for this adapter shares the swap that has ended, and pays its own wait."""
        waited = self.of_adapter(adapter_id)
        record.shared_by = len(waited)
        for job in waited:
            job.swap = record
            job.swap_wait_ms = (now_s - max(begun_s, job.held_at_s)) * 1000

    def adapter_ref(self, adapter_id: int) -> tuple[AdapterRef, str]:
        """How the engine knows an adapter that some waiting job needs, and its files' digest."""
        job = self._queues[adapter_id][0]
        ref, adapter = job.generation.adapter, job.claimed.adapter
        assert ref is not None
        assert adapter is not None
        return ref, adapter.digest

    def heads(self, now_s: float) -> list[Head]:
        """The oldest job of each adapter."""
        return [
            Head(
                job=queue[0].job_id,
                adapter=adapter,
                turn=queue[0].claimed.turn,
                waited_s=now_s - self._slotless_from_s[adapter],
                alone=queue[0].alone,
                prompt_tokens=queue[0].prompt_tokens,
                tokens=queue[0].tokens,
            )
            for adapter, queue in self._queues.items()
        ]

    def next_turns(self) -> dict[int, int]:
        """The oldest turn of each adapter that has waiting jobs."""
        return {adapter: queue[0].claimed.turn for adapter, queue in self._queues.items()}
