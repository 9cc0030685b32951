"""Each rule of the policy by a hand-made case."""

from __future__ import annotations

from typing import Any

import pytest

from workers.policy import BASE, Admit, GiveBack, Head, Room, Rules, SlotView, SwapIn, decide, next_load
from workers.victims import victim

RULES = Rules(max_live=4, max_loras=2, grouping_max_wait_s=2, adapter_max_wait_s=5)


def head(adapter: int, turn: int, waited_s: float = 0.0, *, alone: bool = False) -> Head:
    return Head(f"job{turn}", adapter, turn, waited_s, alone)


def slot(adapter: int, *, live: int = 0, served_s: float = 9.0, **changes: Any) -> SlotView:
    """A slot that has had its time, unless said otherwise."""
    return SlotView(adapter, live, served_s, **{"unused_s": 0.0, "next_turn": None, **changes})


def what(decision: object) -> object:
    """A decision in short: the admitted turn's job, (in, out) of a swap, or None."""
    if isinstance(decision, Admit):
        return decision.job
    return (decision.adapter, decision.evict) if isinstance(decision, SwapIn) else decision


def choose(heads: list[Head], slots: list[SlotView], live: int = 0, rules: Rules = RULES, **state: Any) -> object:
    return what(decide(heads, slots, live, rules, **state))


def test_nothing_waits_nothing_happens() -> None:
    assert choose([], [slot(1)]) is None


def test_the_oldest_turn_goes_first() -> None:
    assert choose([head(1, 5), head(2, 3), head(BASE, 4)], [slot(1), slot(2)]) == "job3"


def test_a_job_of_the_bare_base_needs_no_slot() -> None:
    assert choose([head(BASE, 1)], []) == "job1"


def test_a_full_engine_admits_nobody() -> None:
    assert choose([head(1, 1), head(BASE, 2)], [slot(1, live=4)], live=4) is None


def test_a_job_whose_adapter_is_in_a_slot_overtakes_and_is_told_so() -> None:
    decision = decide([head(1, 9), head(3, 1)], [slot(1), slot(2, live=1)], 1, RULES)
    assert decision == Admit("job9", 1, "its adapter is in a slot")


def test_a_free_slot_is_taken_at_once() -> None:
    assert choose([head(3, 1)], [slot(1, live=1)], live=1) == (3, None)


def test_a_slot_that_a_swap_is_filling_is_not_free() -> None:
    assert choose([head(3, 1), head(4, 2)], [slot(1, live=1)], live=1, loading=3) is None


def test_an_idle_adapter_that_nobody_needs_gives_way_at_once_the_longest_unused_first() -> None:
    slots = [slot(1, unused_s=3, served_s=0), slot(2, unused_s=8, served_s=0)]
    assert choose([head(3, 1)], slots) == (3, 2)


def test_an_idle_adapter_with_waiting_jobs_stays_while_its_time_is_not_over() -> None:
    heads, slots = [head(1, 1), head(3, 2, 60)], [slot(1, served_s=1, next_turn=1), slot(2, live=4)]
    assert choose(heads, slots, live=4) is None


def test_an_adapter_that_has_had_its_time_stops_admitting_for_one_that_has_waited() -> None:
    slots = [slot(1, live=1, served_s=9), slot(2, live=1, served_s=3)]
    assert choose([head(1, 1), head(3, 2, 1.9)], slots, live=2) == "job1"
    assert choose([head(1, 1), head(3, 2, 2.0)], slots, live=2) is None
    assert choose([head(2, 1), head(3, 2, 2.0)], slots, live=2) == "job1", "only the longest served one drains"


def test_one_adapter_drains_for_each_that_insists() -> None:
    slots = [slot(1, live=1), slot(2, live=1)]
    insisting = [head(3, 2, 3), head(4, 3, 3)]
    assert choose([head(2, 1), insisting[0]], slots, live=2, rules=RULES) == "job1"
    assert choose([head(2, 1), *insisting], slots, live=2) is None


def test_a_drained_adapter_is_evicted_although_its_jobs_wait() -> None:
    slots = [slot(1, next_turn=1), slot(2, live=1)]
    assert choose([head(1, 1), head(3, 2, 2.0)], slots, live=1) == (3, 1)


def test_draining_ends_when_whoever_wanted_the_slot_has_gone() -> None:
    slots = [slot(1, live=1), slot(2, live=1)]
    assert choose([head(1, 1)], slots, live=2) == "job1"


def test_the_longest_wait_gets_the_slot_whatever_its_turn() -> None:
    """An adapter with old turns that gave its slot up waits behind all others, or two such would starve a third."""
    assert choose([head(3, 1, 1.0), head(4, 900, 4.0)], [slot(1), slot(2, live=1)], live=1) == (4, 1)


def test_an_adapter_that_came_in_serves_a_job_before_it_can_be_evicted() -> None:
    """However long another has waited: else two would take a slot from each other for ever and serve nobody."""
    rules = Rules(4, 1, 0, 5)
    fresh = slot(1, fresh=True, served_s=0, next_turn=1)
    waiting = [head(1, 1, 3), head(2, 2, 30)]
    assert choose(waiting, [fresh], rules=rules) == "job1"
    assert choose(waiting, [fresh], live=4, rules=rules) is None


def test_an_adapter_that_came_in_has_the_next_place() -> None:
    slots = [slot(1, live=3), slot(2, fresh=True, served_s=0)]
    assert choose([head(1, 1), head(2, 7)], slots, live=3) == "job7"


@pytest.mark.parametrize(("live", "answer"), [(2, "job1"), (3, None)])
def test_a_place_is_kept_for_an_overdue_adapter_whose_slot_is_being_freed(live: int, answer: object) -> None:
    slots = [slot(1, live=1), slot(2, live=1, served_s=0.5)]
    assert choose([head(BASE, 1), head(3, 2, 5)], slots, live=live) == answer
    assert choose([head(BASE, 1), head(3, 2, 4.9)], slots, live=live) == "job1"


def test_the_kept_place_stays_kept_while_the_adapter_is_loaded() -> None:
    heads, slots = [head(BASE, 1), head(3, 2, 6)], [slot(1, live=3), slot(2, leaving=True)]
    assert choose(heads, slots, live=3, loading=3) is None


def test_a_slot_that_is_being_taken_admits_nobody() -> None:
    assert choose([head(2, 1)], [slot(1, live=1), slot(2, leaving=True)], live=1, loading=3) is None


def test_a_suspect_waits_for_an_empty_engine_and_then_nothing_enters_beside_it() -> None:
    heads = [head(1, 1, alone=True), head(1, 2), head(BASE, 3)]
    assert choose(heads, [slot(1, live=1)], live=1) is None
    assert choose(heads, [slot(1)]) == "job1"
    assert choose(heads[1:], [slot(1, live=1)], live=1, alone=True) is None


def test_a_suspect_that_is_not_the_oldest_holds_nobody_up() -> None:
    assert choose([head(1, 1), head(2, 2, alone=True)], [slot(1), slot(2)]) == "job1"


def test_a_suspect_takes_any_slot_at_once_since_all_are_idle() -> None:
    heads = [head(3, 1, alone=True), head(1, 2), head(2, 3)]
    slots = [slot(1, served_s=0, next_turn=2), slot(2, served_s=0, next_turn=3)]
    assert choose(heads, slots) == (3, 2)


def test_a_suspect_enters_although_another_adapter_wants_its_slot() -> None:
    assert choose([head(1, 1, 9, alone=True), head(2, 2, 9), head(3, 3, 9)], [slot(1), slot(4)]) == "job1"


def test_the_victim_is_the_adapter_needed_last() -> None:
    assert victim([]) is None
    soon, late = slot(1, next_turn=3, unused_s=50), slot(2, next_turn=8)
    assert victim([soon, late]) == late
    assert victim([soon, late, slot(3), slot(4, unused_s=1)]) == slot(4, unused_s=1)


def test_a_job_waits_for_room_and_nobody_passes_it() -> None:
    big = Head("big", 1, 1, 0.0, prompt_tokens=50, tokens=300)
    small = Head("small", 2, 2, 0.0, prompt_tokens=5, tokens=10)
    slots = [slot(1, live=1), slot(2)]
    assert choose([big, small], slots, live=1, room=Room(299, 999)) is None
    assert choose([big, small], slots, live=1, room=Room(300, 999)) == "big"
    assert choose([big, small], slots, live=1, room=Room(999, 49)) is None, "the steps have enough prompts to take in"


def test_an_empty_engine_takes_a_job_of_any_size() -> None:
    assert choose([Head("big", 1, 1, 0.0, tokens=300)], [slot(1)], room=Room(10, 10)) == "big"


def test_jobs_that_cannot_start_and_keep_others_out_are_given_back_the_last_in_line_first() -> None:
    slots = [slot(1, live=1, served_s=0.1), slot(2, live=1, served_s=0.1)]
    waiting = [head(3, 1, 6), head(4, 2, 5), head(5, 3, 4)]
    decision = decide(waiting, slots, 2, RULES, crowded_s=5)
    assert isinstance(decision, GiveBack)
    assert decision.adapter == 5
    assert decide(waiting, slots, 2, RULES, crowded_s=4.9) is None
    assert decide(waiting[:2], slots, 2, RULES, crowded_s=60) is None, "what fits the slots is kept"


def test_what_comes_next_is_read_ahead() -> None:
    slots = [slot(1, live=1), slot(2, live=1)]
    assert next_load([head(1, 1), head(3, 2, 1), head(4, 3, 4)], slots, 2, RULES, None) == 4
    assert next_load([head(3, 2, 1), head(4, 3, 4)], slots, 2, RULES, 4) == 3
    assert next_load([head(1, 1), head(BASE, 2)], slots, 2, RULES, None) == BASE
