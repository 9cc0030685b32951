"""Who is next among held jobs: pure decisions over heads of queues and slots, no clock, no I/O.

1. Jobs enter by turn. One whose adapter is in a slot may overtake one whose adapter is not, for at most
   `grouping_max_wait_s`.
2. Adapters get slots in the order in which they began to wait for one. A free slot, or an idle adapter that no job
   needs, is taken at once. Else the adapter longest in its slot stops admitting (drains), once the waiting one has
   waited, and the owner has been served, for `grouping_max_wait_s`. An adapter that came in serves at least one job.
3. For an adapter that has waited `adapter_max_wait_s` a place in the engine, and room for its first job's tokens, is
   kept while its slot is being freed.

So with A adapters waiting for S slots (or places, if fewer) the first job of each is admitted within ceil(A/S) x
(adapter_max_wait_s + longest request + load), as long as the other S - 1 loads of a round fit between the two waits.
No turn can break that: an adapter that gave its slot up waits behind all others.

A job enters only if the engine has room for its tokens; the next one by these rules waits for room, and nobody passes
it. When what is held cannot be admitted and keeps others out, the adapters last in line are given back.

Draining is worked out anew each time, so that it ends by itself when whoever wanted the slot has gone.
A job that was in the engine when a worker died, or whose output was corrupted, runs alone: it takes nobody with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from workers.victims import victim

BASE = 0
"""Stands for the bare base model, which needs no slot."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The limits that bind every decision. Times in seconds."""

    max_live: int
    max_loras: int
    grouping_max_wait_s: float
    adapter_max_wait_s: float
    max_held: int = 1 << 30

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
    prompt_tokens: int = 0
    tokens: int = 0
    """Prompt and expected output."""


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
    backlog_place: int | None = None
    """Its place in the backlog's order of next uses; None when it is not known to be needed there."""
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


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Return this adapter's waiting jobs to the backlog: they keep others out and cannot run soon."""

    adapter: int
    reason: str


Decision: TypeAlias = Admit | SwapIn | GiveBack


@dataclass(frozen=True, slots=True)
class Room:
    """Tokens that the engine can still take: in all, and as prompts that wait for their first step."""

    tokens: int
    prompt_tokens: int

    def without(self, kept: Iterable[Head]) -> Room:
        """What is left when these have their place."""
        tokens, prompt_tokens = self.tokens, self.prompt_tokens
        for head in kept:
            tokens, prompt_tokens = tokens - head.tokens, prompt_tokens - head.prompt_tokens
        return Room(tokens, prompt_tokens)

    def has(self, head: Head, live: int, kept: Sequence[Head] = ()) -> bool:
        """Whether a job may enter beside those for whom room is kept. An empty engine takes any when there are none."""
        left = self.without(kept)
        return (live == 0 and not kept) or (head.tokens <= left.tokens and head.prompt_tokens <= left.prompt_tokens)


ENDLESS = Room(1 << 40, 1 << 40)


@dataclass(frozen=True, slots=True)
class Scene:
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
    room: Room = ENDLESS,
    crowded_s: float = 0.0,
) -> Decision | None:
    """The next thing to do, or None: wait for a job to finish, a swap to end, or time to pass.

    `loading`: the adapter that a swap is bringing in. `alone`: the one live job must stay alone. `crowded_s`: for how
    long no job more could be held although the engine has places.
    """
    order = eligible(heads, live)
    if not order or alone:
        return None
    scene = look(order, slots, rules, loading)
    decision: Decision | None = _admit(scene, slots, live, rules, loading, room)
    if decision is None and loading is None and scene.wanting:
        decision = _make_room(scene)
    if decision is None and crowded_s >= rules.adapter_max_wait_s and len(scene.wanting) > rules.max_loras:
        decision = GiveBack(scene.wanting[-1].adapter, "the worker was full of jobs that could not start")
    return decision


def eligible(heads: Iterable[Head], live: int) -> list[Head]:
    """Who may enter now or later, by turn. A suspect waits until it is the oldest; then nothing enters beside it."""
    order = sorted(heads, key=lambda head: head.turn)
    if order and order[0].alone:
        return [] if live else order[:1]
    return [head for head in order if not head.alone]


def next_load(heads: Iterable[Head], slots: Sequence[SlotView], live: int, rules: Rules, loading: int | None) -> int:
    """The adapter to read into host memory ahead of its swap; BASE for none."""
    scene = look(eligible(heads, live), slots, rules, loading)
    return scene.wanting[0].adapter if scene.wanting else BASE


def look(order: list[Head], slots: Sequence[SlotView], rules: Rules, loading: int | None) -> Scene:
    """Sort out what a decision looks at."""
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
    return Scene(order, wanting, idle, unneeded, free, frozenset(slot.adapter for slot in longest))


def _admit(
    scene: Scene, slots: Sequence[SlotView], live: int, rules: Rules, loading: int | None, room: Room
) -> Admit | None:
    """The oldest turn whose adapter may take jobs; before it, the first job of an adapter that has just come in."""
    overdue = {head.adapter for head in scene.order if head.waited_s >= rules.adapter_max_wait_s}
    claims = [head for head in scene.wanting if head.adapter in overdue]
    opening = len(scene.draining.union(slot.adapter for slot in scene.unneeded)) + scene.free
    coming = [head for head in scene.order if head.adapter == loading and loading in overdue]
    kept = [*claims[:opening], *coming]
    closed = scene.draining | {slot.adapter for slot in slots if slot.leaving}
    admitting = {slot.adapter for slot in slots} - closed | {BASE}
    fresh = {slot.adapter for slot in slots if slot.fresh}
    for head in sorted(scene.order, key=lambda head: head.adapter not in fresh):
        first_of_all = head.adapter in fresh or head.alone
        places = rules.max_live if first_of_all else rules.max_live - len(kept)
        if head.adapter in admitting and live < places:
            if not room.has(head, live, () if first_of_all else kept):
                return None
            first = all(head.turn <= other.turn for other in scene.order)
            return Admit(head.job, head.adapter, "its turn" if first else "its adapter is in a slot")
    return None


def _make_room(scene: Scene) -> SwapIn | None:
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
