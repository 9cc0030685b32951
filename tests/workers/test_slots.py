"""The book of slots: pins, times, and that it cannot lie unnoticed."""

from __future__ import annotations

import pytest

from workers.policy import BASE
from workers.slots import Slots, SlotsBroken


def test_jobs_pin_their_adapter_and_those_of_the_base_pin_nothing() -> None:
    slots = Slots(2)
    slots.entered(7, 1.0)
    for adapter in (7, 7, BASE):
        slots.admit(adapter, 2.0)
    assert (slots.live, slots.live_adapters, slots.resident) == (3, 1, frozenset({7}))
    slots.release(7, 3.0)
    slots.release(BASE, 3.0)
    assert (slots.live, slots.live_adapters) == (1, 1)


def test_a_view_says_since_when_a_slot_serves_and_how_long_it_is_unused() -> None:
    slots = Slots(2)
    slots.entered(7, 1.0)
    [view] = slots.views(5.0, {7: 30})
    assert (view.fresh, view.served_s, view.unused_s, view.next_turn) == (True, 0.0, 4.0, 30)
    slots.admit(7, 6.0)
    slots.release(7, 8.0)
    slots.admit(7, 8.5)
    slots.release(7, 9.0)
    [view] = slots.views(10.0, {})
    assert (view.fresh, view.served_s, view.unused_s, view.next_turn, view.live) == (False, 4.0, 1.0, None, 0)


def test_a_pinned_adapter_cannot_leave() -> None:
    slots = Slots(1)
    slots.entered(7, 0.0)
    slots.admit(7, 0.0)
    with pytest.raises(SlotsBroken, match="1 live"):
        slots.left(7)


def test_a_leaving_adapter_admits_nobody_until_the_swap_is_over() -> None:
    slots = Slots(1)
    slots.entered(7, 0.0)
    slots.leaves(7)
    assert slots.views(0.0, {})[0].leaving
    with pytest.raises(SlotsBroken, match="leaves"):
        slots.admit(7, 0.0)
    slots.leaves(None)
    slots.admit(7, 0.0)
    assert slots.live == 1


def test_a_job_needs_its_adapter_in_a_slot() -> None:
    with pytest.raises(SlotsBroken, match="no slot"):
        Slots(1).admit(7, 0.0)


def test_more_adapters_than_slots_are_seen() -> None:
    slots = Slots(1)
    slots.entered(7, 0.0)
    with pytest.raises(SlotsBroken, match="2 adapters in 1"):
        slots.entered(8, 0.0)


@pytest.mark.parametrize("adapter", [BASE, 7])
def test_more_leaving_than_entering_is_seen(adapter: int) -> None:
    slots = Slots(1)
    slots.entered(7, 0.0)
    with pytest.raises(SlotsBroken, match="more jobs left"):
        slots.release(adapter, 0.0)


def test_a_new_engine_begins_with_empty_books() -> None:
    slots = Slots(1)
    slots.entered(7, 0.0)
    slots.admit(7, 0.0)
    slots.admit(BASE, 0.0)
    slots.clear()
    assert (slots.live, slots.resident) == (0, frozenset())


def test_a_difference_to_the_engine_is_seen_and_the_engine_is_right() -> None:
    slots = Slots(2)
    slots.entered(7, 0.0)
    assert slots.differs([7]) == frozenset()
    assert slots.differs([7, 8]) == {8}
    assert slots.differs([8]) == {7, 8}
    slots.adopt([8], 1.0)
    assert slots.resident == {8}


def test_a_slot_that_the_engine_has_lost_under_a_live_job_is_no_quiet_matter() -> None:
    slots = Slots(2)
    slots.entered(7, 0.0)
    slots.admit(7, 0.0)
    with pytest.raises(SlotsBroken):
        slots.adopt([], 1.0)
