"""Who is next among held jobs: pure decisions over heads of queues and slots, no clock, no I/O.

1. Jobs enter by turn. One whose adapter is in a slot may overtake one whose adapter is not, for at most
   `grouping_max_wait_s`.
2. Adapters get slots in the order in which they began to wait for one. A free slot, or an idle adapter that no job
   needs, is taken at once. Else the adapter longest in its slot stops admitting (drains), once the waiting one has
   waited, and the owner has been served, for `grouping_max_wait_s`. An adapter that came in serves at least one job.
3. For an adapter that has waited `adapter_max_wait_s` a place in the engine is kept while its slot is being freed.

So with A adapters waiting for S slots (or places, if fewer) the first job of each is admitted within ceil(A/S) x
(adapter_max_wait_s + longest request + load), as long as the other S - 1 loads of a round fit between the two waits.
No turn can break that: an adapter that gave its slot up waits behind all others.

Draining is worked out anew each time, so that it ends by itself when whoever wanted the slot has gone.
A job that was in the engine when a worker died, or whose output was corrupted, runs alone: it takes nobody with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

BASE = 0
"""Stands for the bare base model, which needs no slot."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits that bind every decision. Times in seconds."""

    max_live: int
    max_loras: int
    grouping_max_wait_s: float
    adapter_max_wait_s: float

    @property
    def patience_s(self) -> float:
        """How long an adapter waits, and another keeps its slot, before one gives way to the other."""
        return min(self.grouping_max_wait_s, self.adapter_max_wait_s)


@dataclass(frozen=True, slots=True)
class Head:
    """The oldest held job of one adapter. `waited_s`: since the adapter has had waiting jobs and no slot."""

    job: object
    adapter: int
    turn: int
    waited_s: float
    alone: bool = False


@dataclass(frozen=True, slots=True)
class SlotView:
    """One adapter in a slot."""

    adapter: int
    live: int
    served_s: float
    """Since its first job entered the engine."""
    unused_s: float
    next_turn: int | None
    """Its next known use; None when no held job needs it."""
    fresh: bool = False
    """It has come in and not had a job yet."""
    leaving: bool = False
    """A swap that is under way takes this slot."""


@dataclass(frozen=True, slots=True)
class Admit:
    """Give this job to the engine."""

    job: object
    adapter: int
    reason: str


@dataclass(frozen=True, slots=True)
class SwapIn:
    """Bring this adapter into a slot, in place of `evict` unless a slot is free."""

    adapter: int
    evict: int | None
    reason: str


Decision: TypeAlias = Admit | SwapIn


@dataclass(frozen=True, slots=True)
class _Scene:
    """What a decision looks at, sorted out."""

    order: list[Head]
    """Jobs that may be admitted now or later, by turn."""
    wanting: list[Head]
    """Those whose adapter needs a slot and gets none yet, longest wait first."""
    idle: list[SlotView]
    unneeded: list[SlotView]
    """The idle ones for which no job waits."""
    free: int
    draining: frozenset[int]


def decide(
    heads: Iterable[Head],
    slots: Sequence[SlotView],
    live: int,
    rules: Rules,
    *,
    loading: int | None = None,
    alone: bool = False,
) -> Decision | None:
    """The next thing to do, or None: wait for a job to finish, a swap to end, or time to pass.

    `loading`: the adapter that a swap is bringing in. `alone`: the one live job must stay alone.
    """
    order = sorted(heads, key=lambda head: head.turn)
    if not order or alone:
        return None
    if order[0].alone and live:
        return None
    # A suspect waits until it is the oldest; then nothing enters beside it.
    order = order[:1] if order[0].alone else [head for head in order if not head.alone]
    scene = _scene(order, slots, rules, loading)
    admission = _admit(scene, slots, live, rules, loading)
    if admission is not None or loading is not None or not scene.wanting:
        return admission
    return _make_room(scene)


def victim(slots: Iterable[SlotView]) -> SlotView | None:
    """The slot whose adapter is needed last: farthest next turn, or, of those not needed, longest unused."""
    return max(slots, key=lambda s: (s.next_turn is None, s.next_turn or 0, s.unused_s), default=None)


def _scene(order: list[Head], slots: Sequence[SlotView], rules: Rules, loading: int | None) -> _Scene:
    placed = {slot.adapter for slot in slots} | {BASE, loading}
    wanting = sorted((head for head in order if head.adapter not in placed), key=lambda head: -head.waited_s)
    needed = {head.adapter for head in order}
    idle = [slot for slot in slots if slot.live == 0 and not slot.leaving]
    unneeded = [slot for slot in idle if slot.adapter not in needed]
    coming = loading is not None and not any(slot.leaving for slot in slots)
    free = rules.max_loras - len(slots) - coming
    insisting = sum(head.waited_s >= rules.patience_s for head in wanting)
    owners = [slot for slot in slots if not (slot.fresh or slot.leaving) and slot.served_s >= rules.patience_s]
    longest = sorted(owners, key=lambda slot: -slot.served_s)[: max(0, insisting - free)]
    return _Scene(order, wanting, idle, unneeded, free, frozenset(slot.adapter for slot in longest))


def _admit(scene: _Scene, slots: Sequence[SlotView], live: int, rules: Rules, loading: int | None) -> Admit | None:
    """The oldest turn whose adapter may take jobs; before it, the first job of an adapter that has just come in."""
    overdue = {head.adapter for head in scene.order if head.waited_s >= rules.adapter_max_wait_s}
    claims = sum(head.adapter in overdue for head in scene.wanting)
    opening = len(scene.draining.union(slot.adapter for slot in scene.unneeded)) + scene.free
    kept = min(claims, opening) + (loading in overdue)
    closed = scene.draining | {slot.adapter for slot in slots if slot.leaving}
    admitting = {slot.adapter for slot in slots} - closed | {BASE}
    fresh = {slot.adapter for slot in slots if slot.fresh}
    for head in sorted(scene.order, key=lambda head: head.adapter not in fresh):
        places = rules.max_live if head.adapter in fresh or head.alone else rules.max_live - kept
        if head.adapter in admitting and live < places:
            first = all(head.turn <= other.turn for other in scene.order)
            return Admit(head.job, head.adapter, "its turn" if first else "its adapter is in a slot")
    return None


def _make_room(scene: _Scene) -> SwapIn | None:
    """A slot for the adapter that waits longest: free, else idle and unneeded, else drained."""
    want = scene.wanting[0]
    if scene.free > 0:
        return SwapIn(want.adapter, None, "a slot is free")
    unneeded = victim(scene.unneeded)
    if unneeded is not None:
        return SwapIn(want.adapter, unneeded.adapter, "no waiting job needs the evicted adapter")
    drained = victim(slot for slot in scene.idle if slot.adapter in scene.draining)
    if drained is not None:
        return SwapIn(want.adapter, drained.adapter, "it has waited its time, and the evicted adapter has had its own")
    return None
