"""Eviction policies replayed over traces of uses, with pins: pure, and with the product's own choice of victims.

A trace is a list of uses in order; each pins its adapter for as many further uses as its request runs. A use that finds
no idle slot waits until the first pin ends. The product sees the uses that are held, not the whole future.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.workload import sequence
from workers.victims import HostCopy, victim

POLICIES = ("farthest", "lru", "optimum")
HELD = 256


@dataclass(frozen=True, slots=True)
class Use:
    """One job: its adapter, and for how many further uses its request runs."""

    adapter: int
    runs_for: int


@dataclass(frozen=True, slots=True)
class Trace:
    """A named sequence of uses and the number of slots it meets."""

    name: str
    slots: int
    uses: tuple[Use, ...]


def traces(jobs: int) -> list[Trace]:
    """The named traces: every pattern of arrivals, in few and in many slots."""
    named = []
    for adapters, slots in ((16, 2), (64, 4), (200, 8)):
        for pattern in ("uniform", "zipf", "bursty"):
            name = f"{pattern}-{adapters}-in-{slots}"
            random = Random(name)
            chosen = sequence(jobs, adapters, pattern, random)
            named.append(Trace(name, slots, tuple(Use(adapter, random.randint(0, slots)) for adapter in chosen)))
    return named


def activations(trace: Trace, policy: str, held: int = HELD) -> int:
    """How many times an adapter has to be brought into a slot."""
    places = _places(trace)
    used: dict[int, int] = {}
    """Of each adapter in a slot: when it was last used."""
    pinned: dict[int, int] = {}
    count = now = 0
    for index, use in enumerate(trace.uses):
        now = max(now, index)
        if use.adapter not in used:
            count += 1
            if len(used) >= trace.slots:
                now = max(now, min(pinned[adapter] for adapter in used) + 1)
                idle = [adapter for adapter in used if pinned[adapter] < now]
                gone = _victim(policy, idle, used, places, index, held)
                del used[gone], pinned[gone]
        used[use.adapter] = now
        pinned[use.adapter] = max(pinned.get(use.adapter, 0), now + use.runs_for)
    return count


def _places(trace: Trace) -> dict[int, list[int]]:
    places: dict[int, list[int]] = {}
    for index, use in enumerate(trace.uses):
        places.setdefault(use.adapter, []).append(index)
    return places


def _victim(
    policy: str, idle: Sequence[int], used: dict[int, int], places: dict[int, list[int]], index: int, held: int
) -> int:
    if policy == "lru":
        return min(idle, key=lambda adapter: used[adapter])
    sight = index + held if policy == "farthest" else None
    copies = [
        HostCopy(adapter, float(index - used[adapter]), _next(places[adapter], index, sight), None) for adapter in idle
    ]
    chosen = victim(copies)
    assert chosen is not None, "a pin that has ended leaves an idle slot"
    return chosen.adapter


def _next(places: Sequence[int], index: int, sight: int | None) -> int | None:
    """The next use after `index`, None when there is none, or none in sight."""
    following = bisect_right(places, index)
    if following == len(places) or (sight is not None and places[following] > sight):
        return None
    return places[following]
