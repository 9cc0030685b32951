"""The choice over lanes: jobs that go out of turn, because their deadline is near or a death took their turn away."""

from __future__ import annotations

from random import Random

from registry.backlog import order
from registry.backlog.order import BASE, Due, Rescued, Scene
from tests.registry.backlog.test_order import accounts, lane


def test_a_deadline_jumps_when_it_is_nearer_than_the_expected_wait() -> None:
    def urgent(left_s: float, seq: int = 1, jobs_per_s: float = 10.0) -> bool:
        lanes = [lane("a", 1), lane("b", 2)]
        due = [Due("job", "a", 1, seq, left_s)]
        scene = Scene(lanes, accounts(a=0, b=0), due=due, jobs_per_s=jobs_per_s)
        return bool(order.choose(scene, 4, Random(0)).urgent)

    assert urgent(29)
    assert not urgent(300)
    assert urgent(300, seq=2001), "2,000 jobs before it at five a second"
    assert not urgent(300, seq=2001, jobs_per_s=0), "no pace is known yet"


def test_deadlines_take_half_of_a_pick_and_are_charged() -> None:
    due = [Due(n, "hasty", 1, n, 1.0) for n in range(50)]
    books = accounts(hasty=0, other=0)
    choice = order.choose(Scene([lane("hasty", 1, depth=50), lane("other", 2)], books, due=due), 8, Random(0))
    assert len(choice.urgent) == 4
    assert [(lane.tenant, jobs) for lane, jobs in choice.lanes] == [("other", 4)]
    assert books["hasty"].served == 40


def test_what_dead_workers_held_goes_before_all_others_and_is_not_charged_again() -> None:
    back = [Rescued(n, 1) for n in range(6)]
    books = accounts(a=900, b=0)
    scene = Scene([lane("a", 1), lane("b", 2)], books, rescued=back, due=[Due("due", "b", 2, 1, 1.0)])
    choice = order.choose(scene, 10, Random(0))
    assert choice.urgent == [0, 1, 2, 3, 4, 5, "due"]
    assert [(lane.tenant, jobs) for lane, jobs in choice.lanes] == [("b", 3)]
    assert books["a"].served == 900


def test_what_dead_workers_held_takes_no_more_than_is_wanted() -> None:
    scene = Scene([lane("a", 1)], accounts(a=0), rescued=[Rescued(n, 1) for n in range(6)])
    assert len(order.choose(scene, 4, Random(0)).urgent) == 4
    assert not order.choose(scene, 0, Random(0)).urgent


def test_what_dead_workers_held_gets_the_places_under_the_cap_first() -> None:
    back = [Rescued("first", 1), Rescued("second", 2), Rescued("base", BASE), Rescued("same", 1)]
    scene = Scene([lane("a", 1), lane("b", 2), lane("c", 3)], accounts(a=0, b=0, c=0), rescued=back, max_unfinished=1)
    choice = order.choose(scene, 20, Random(0))
    assert choice.urgent == ["first", "base", "same"]
    assert {lane.adapter for lane, _ in choice.lanes} <= {1}
