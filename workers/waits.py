"""Why held jobs wait, in words: pure, and the same for all tenants. No names, no ids: a tenant may read it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workers.policy import BASE, ENDLESS, Head, Room, Rules, SlotView, eligible, look

ALONE = "another job has to run alone first"
SUSPECT = "it has to run alone and waits for its turn in an empty engine"
LOADING = "its adapter is being brought into a slot"
DRAINING = "its adapter has had its time in a slot and makes way for one that waited longer"
NO_SLOT = "all adapter slots are in use; the one longest in its slot is freed after the waiting limit"
NEXT_SLOT = "a slot is being freed for its adapter"
FULL = "the engine runs as many jobs as it can"
NO_ROOM = "the engine has no room for its tokens yet"
KEPT = "the free place is kept for a job that has waited longer"
TURN = "older jobs go first"


def reasons(
    heads: Iterable[Head],
    slots: Sequence[SlotView],
    live: int,
    rules: Rules,
    *,
    loading: int | None = None,
    alone: bool = False,
    room: Room = ENDLESS,
) -> dict[int, str]:
    """For each adapter with waiting jobs (BASE for the bare base), what they wait for."""
    heads = list(heads)
    order = eligible(heads, live)
    words = {head.adapter: SUSPECT if head.alone else ALONE for head in heads}
    if alone or not order:
        return words
    scene = look(order, slots, rules, loading)
    wanting = [head.adapter for head in scene.wanting]
    for head in order:
        if head.adapter == loading:
            words[head.adapter] = LOADING
        elif head.adapter in wanting:
            words[head.adapter] = NEXT_SLOT if wanting.index(head.adapter) < len(scene.draining) else NO_SLOT
        elif head.adapter != BASE and head.adapter in scene.draining:
            words[head.adapter] = DRAINING
        elif live >= rules.max_live:
            words[head.adapter] = FULL
        elif not room.has(head, live):
            words[head.adapter] = NO_ROOM
        else:
            words[head.adapter] = KEPT if live == rules.max_live - 1 else TURN
    return words
