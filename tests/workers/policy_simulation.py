"""An engine in virtual time, driven by the policy through the worker's own books; every promise is checked on the way.

Times are multiples of a quarter second, which floats hold exactly; the policy is asked at least that often.
"""

from __future__ import annotations

import heapq
import itertools
import math
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field

from registry.transitions import ALONE_CRASHES
from tests.workers.held_jobs import held_job
from workers import policy
from workers.held import HeldJob, WaitingRoom
from workers.policy import BASE, Room, Rules
from workers.slots import Slots

TICK_S = 0.25
STUCK_AFTER_S = 200.0


@dataclass(frozen=True)
class Arrival:
    """A job that comes in: how long it will run, and when it is cancelled, if ever."""

    at_s: float
    adapter: int
    runs_s: float
    alone: bool = False
    cancelled_after_s: float | None = None
    output_tokens: int = 1
    """The prompt is one more."""
    late: int = 0
    """By how many turns it comes behind its place: claims may overtake each other."""


@dataclass
class Wait:
    """One adapter's time from having waiting jobs and no slot to its next admission."""

    from_s: float
    adapters: int = 1
    """The most adapters that waited at once in this time."""
    waited_s: float = 0.0


@dataclass
class Simulation:
    """`run` until every job has ended; the lists say how it went."""

    rules: Rules
    load_s: float
    bad_adapters: frozenset[int] = frozenset()
    kv_tokens: int = 1 << 40
    """What all live jobs together may have; no job has more."""
    now_s: float = 0.0
    adapter_waits: list[Wait] = field(default_factory=list)
    job_waits: list[Wait] = field(default_factory=list)
    admitted: list[HeldJob] = field(default_factory=list)
    swaps: int = 0

    def __post_init__(self) -> None:
        self.slots = Slots(self.rules.max_loras)
        self.room = WaitingRoom()
        self._events: list[tuple[float, int, str, object]] = []
        self._serial = itertools.count()
        self._runs_s: dict[uuid.UUID, float] = {}
        self._live: dict[uuid.UUID, HeldJob] = {}
        self._loading: int | None = None
        self._adapter_wait: dict[int, Wait] = {}
        self._job_wait: dict[uuid.UUID, Wait] = {}

    def run(self, arrivals: Iterable[Arrival]) -> Simulation:
        """Play the arrivals to the end. AssertionError when a promise is broken or nothing moves any more."""
        for number, arrival in enumerate(sorted(arrivals, key=lambda arrival: arrival.at_s)):
            self._at(arrival.at_s, "arrive", ((number - arrival.late) * 1000 + number, arrival))
        while self._events or len(self.room):
            self._next_moment()
            self._pump()
            self._check()
            self._note_waits()
        assert not self._live
        return self

    def bound_s(self, wait: Wait, longest_s: float, most_tokens: int = 1) -> float:
        """B of the policy's promise: as many adapters at once as slots, places and tokens allow."""
        at_once = min(self.rules.max_loras, self.rules.max_live, max(1, self.kv_tokens // most_tokens))
        rounds = math.ceil(wait.adapters / at_once)
        return rounds * (self.rules.adapter_max_wait_s + longest_s + self.load_s)

    def _at(self, at_s: float, what: str, about: object) -> None:
        heapq.heappush(self._events, (at_s, next(self._serial), what, about))

    def _next_moment(self) -> None:
        idle_until_s = self._events[0][0] if self._events else math.inf
        if len(self.room):
            assert self._live or self._loading or min(idle_until_s, self.now_s) < STUCK_AFTER_S, "nothing moves"
            idle_until_s = min(idle_until_s, self.now_s + TICK_S)
        self.now_s = max(self.now_s, idle_until_s)
        while self._events and self._events[0][0] <= self.now_s:
            _, _, what, about = heapq.heappop(self._events)
            getattr(self, f"_{what}")(about)

    def _arrive(self, about: tuple[int, Arrival]) -> None:
        turn, arrival = about
        job = held_job(
            arrival.adapter,
            turn,
            held_at_s=self.now_s,
            crashes=ALONE_CRASHES * arrival.alone,
            prompt="p",
            max_tokens=min(arrival.output_tokens, self.kv_tokens - 1),
        )
        self._runs_s[job.job_id] = arrival.runs_s
        self.room.add(job)
        self._job_wait[job.job_id] = Wait(self.now_s)
        if arrival.cancelled_after_s is not None:
            self._at(self.now_s + arrival.cancelled_after_s, "cancel", job)

    def _cancel(self, job: HeldJob) -> None:
        if self.room.take(job.job_id) is None:
            self._finish(job)

    def _finish(self, job: HeldJob) -> None:
        if self._live.pop(job.job_id, None) is not None:
            self.slots.release(job.adapter_id, self.now_s)

    def _loaded(self, adapter: int) -> None:
        self._loading = None
        if adapter not in self.bad_adapters:
            self.slots.entered(adapter, self.now_s)
            return
        for job in self.room.of_adapter(adapter):
            self.room.take(job.job_id)

    def _decide(self) -> policy.Decision | None:
        slots = self.slots.views(self.now_s, self.room.next_turns())
        alone = any(job.alone for job in self._live.values())
        heads = self.room.heads(self.now_s)
        room = Room(self._left(), 1 << 40)
        return policy.decide(heads, slots, self.slots.live, self.rules, loading=self._loading, alone=alone, room=room)

    def _left(self) -> int:
        return self.kv_tokens - sum(job.tokens for job in self._live.values())

    def _pump(self) -> None:
        for _ in range(10_000):
            match self._decide():
                case policy.Admit(job=job_id):
                    assert isinstance(job_id, uuid.UUID)
                    self._admit(job_id)
                case policy.SwapIn(adapter=adapter, evict=evict):
                    self._swap(adapter, evict)
                case None:
                    return
        raise AssertionError("the policy never comes to rest")

    def _admit(self, job_id: uuid.UUID) -> None:
        job = self.room.take(job_id)
        assert job is not None
        others = self.room.of_adapter(job.adapter_id)
        assert all(job.claimed.turn < other.claimed.turn for other in others), "order within the adapter"
        assert not (job.alone and self._live), "a suspect enters an empty engine"
        self.slots.admit(job.adapter_id, self.now_s)
        self._live[job_id] = job
        self.admitted.append(job)
        self._at(self.now_s + self._runs_s[job_id], "finish", job)
        self._end_wait(self.job_waits, self._job_wait.pop(job_id))
        if job.adapter_id in self._adapter_wait:
            self._end_wait(self.adapter_waits, self._adapter_wait.pop(job.adapter_id))

    def _end_wait(self, done: list[Wait], wait: Wait) -> None:
        wait.waited_s = self.now_s - wait.from_s
        done.append(wait)

    def _swap(self, adapter: int, evict: int | None) -> None:
        assert self._loading is None, "one swap at a time"
        assert adapter not in self.slots.resident
        if evict is not None:
            self.slots.left(evict)  # raises when it is pinned
            self.room.lost_slot(evict, self.now_s)
        assert len(self.slots.resident) < self.rules.max_loras, "a slot is free for it"
        self.swaps += 1
        self._loading = adapter
        self._at(self.now_s + self.load_s, "loaded", adapter)

    def _note_waits(self) -> None:
        waiting = self.room.next_turns().keys() - {BASE}
        slotless = waiting - self.slots.resident
        for adapter in [*self._adapter_wait]:
            if adapter not in waiting:
                del self._adapter_wait[adapter]  # cancelled, or its load failed
        for adapter in slotless:
            self._adapter_wait.setdefault(adapter, Wait(self.now_s))
        for wait in self._adapter_wait.values():
            wait.adapters = max(wait.adapters, len(self._adapter_wait))
        for wait in self._job_wait.values():
            wait.adapters = max(wait.adapters, len(waiting))

    def _check(self) -> None:
        """At rest: never too many adapters, nobody waits who could run, no slot lies idle that somebody wants."""
        rules = self.rules
        views = {view.adapter: view for view in self.slots.views(self.now_s, {})}
        assert self.slots.live_adapters <= len(views) <= rules.max_loras
        assert len(self._live) == self.slots.live <= rules.max_live
        heads = sorted(self.room.heads(self.now_s), key=lambda head: head.turn)
        if not heads or heads[0].alone or any(job.alone for job in self._live.values()):
            return
        heads = [head for head in heads if not head.alone]
        coming = [head for head in heads if head.adapter not in views and head.adapter != BASE]
        overdue = sum(head.waited_s >= rules.adapter_max_wait_s for head in coming)
        insisting = any(head.waited_s >= rules.patience_s for head in coming if head.adapter != self._loading)
        kept = sum(head.tokens for head in coming if head.waited_s >= rules.adapter_max_wait_s)
        fresh = {view.adapter for view in views.values() if view.fresh}
        for head in sorted(heads, key=lambda head: head.adapter not in fresh):
            if head not in coming and self.slots.live < rules.max_live - overdue:
                if (self._live or kept) and head.tokens > self._left() - kept:
                    break  # it waits for room, and nobody passes it
                view = views.get(head.adapter)
                if insisting and view is not None and not view.fresh and view.served_s >= rules.patience_s:
                    continue  # it drains
                raise AssertionError(f"{head} waits although a place is free")
        if self._loading is None and coming:
            needed = {head.adapter for head in heads}
            assert len(views) == rules.max_loras, "a slot is free"
            assert all(view.live or view.adapter in needed for view in views.values()), "a slot is idle and unneeded"
