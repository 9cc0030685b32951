"""How many unclaimed messages a queue should hold: what will be taken until the next look, and no long line."""

from __future__ import annotations

import pytest

from registry.backlog import Load
from workers.flow import FIRST_UNCLAIMED, HEADROOM, MAX_AHEAD, MIN_UNCLAIMED, Flow


@pytest.mark.parametrize(
    ("load", "answer"),
    [
        (Load("d", False, 0, 0, 64), 0),
        (Load("d", True, 0, 0, 0), MIN_UNCLAIMED),
        (Load("d", True, 5, 0, 0), MIN_UNCLAIMED - 5),
        (Load("d", True, 0, 0, 64), 64),
        (Load("d", True, 10, 20, 64), 34),
        (Load("d", True, 0, 64, 64), MIN_UNCLAIMED),
        (Load("d", True, MIN_UNCLAIMED, 64, 64), 0),
        (Load("d", True, 0, 0, 1000), FIRST_UNCLAIMED),
        (Load("d", True, 500, 0, 1000), 0),
    ],
)
def test_at_first_a_queue_gets_what_free_threads_can_take(load: Load, answer: int) -> None:
    assert Flow().wanted(load) == answer


def held_unclaimed(claimed_a_look: int, looks: int, flow: Flow, unclaimed: int = 0) -> list[int]:
    """What lies in the queue after each look, while so many are claimed between looks and threads are always free."""
    after = []
    for _ in range(looks):
        unclaimed += flow.wanted(Load("d", True, unclaimed, 4, 10_000))
        after.append(unclaimed)
        unclaimed = max(0, unclaimed - claimed_a_look)
    return after


@pytest.mark.parametrize("claimed", [5, 20, 60])
def test_a_busy_queue_holds_little_more_than_is_claimed_until_the_next_look(claimed: int) -> None:
    after = held_unclaimed(claimed, 80, Flow())

    assert claimed < after[-1] <= HEADROOM * claimed + MIN_UNCLAIMED


def test_one_look_that_saw_nothing_claimed_does_not_empty_the_queue() -> None:
    flow = Flow()
    usual = held_unclaimed(20, 80, flow)[-1]

    assert flow.wanted(Load("d", True, usual, 4, 10_000)) == 0
    assert usual - 20 + flow.wanted(Load("d", True, usual - 20, 4, 10_000)) == usual


def test_a_queue_that_ran_dry_gets_twice_as_much_at_each_look() -> None:
    flow = Flow()
    low = held_unclaimed(5, 80, flow)[-1]

    after = held_unclaimed(1000, 3, flow)

    assert after == [2 * low, 4 * low, 8 * low]


def test_an_idle_deployment_is_sent_a_good_part_at_once() -> None:
    flow = Flow()
    held_unclaimed(5, 80, flow)

    assert flow.wanted(Load("d", True, 0, 0, 1000)) == FIRST_UNCLAIMED


@pytest.mark.parametrize(
    ("load", "answer"),
    [
        (Load("d", True, 0, 0, 1000), MAX_AHEAD),
        (Load("d", True, 40, 200, 96), 56),
        (Load("d", True, 40, 200, 32), 0),
        (Load("d", False, 0, 0, 1000), 0),
    ],
)
def test_newcomers_may_be_sent_what_workers_can_hold_whatever_else_lies_there(load: Load, answer: int) -> None:
    flow = Flow()
    flow.wanted(load)

    assert flow.ahead(load) == answer


def test_what_newcomers_were_sent_counts_as_sent() -> None:
    flow, plain = Flow(), Flow()
    usual = held_unclaimed(20, 80, flow)[-1]
    held_unclaimed(20, 80, plain)
    flow.sent(30)

    assert flow.wanted(Load("d", True, usual + 30 - 20, 4, 10_000)) == 0
    assert flow.wanted(Load("d", True, usual - 20, 4, 10_000)) >= plain.wanted(Load("d", True, usual - 20, 4, 10_000))
