"""The choice over lanes: service by weight, no credit for idleness, nobody waits without bound, whatever the story."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from registry.backlog import order
from registry.backlog.order import AHEAD_JOBS, BASE, OVERTAKING_JOBS, Account, Lane, Pace, Scene
from tests.stories import stories

RUN = 8


def lane(
    tenant: str, adapter: int = BASE, *, seq: int = 1, depth: int = RUN, cost: float = 10.0, **more: float
) -> Lane:
    return Lane(tenant, adapter, int(more.get("priority", 0)), seq, more.get("waited_s", 0.0), depth, cost)


def accounts(**served: float) -> dict[str, Account]:
    return {tenant: Account(counter, 1.0, True) for tenant, counter in served.items()}


def chosen(scene: Scene, wanted: int, seed: int = 0) -> list[tuple[str, int, int]]:
    return [(lane.tenant, lane.adapter, jobs) for lane, jobs in order.choose(scene, wanted, Random(seed)).lanes]


@dataclass
class Backlog:
    """Tenants with endless or counted work, served pick by pick, jobs done at once or after `lag` picks."""

    weights: dict[str, float]
    costs: dict[str, float]
    adapters: dict[str, list[int]]
    max_unfinished: int = 1 << 30
    lag: int = 0
    seed: int = 0
    accounts: dict[str, Account] = field(default_factory=dict)
    tokens: Counter[str] = field(default_factory=Counter)
    flying: list[list[tuple[str, int]]] = field(default_factory=list)
    picks: int = 0

    def pick(self, waiting: list[str], wanted: int) -> set[str]:
        """One pick; the tenants that got something."""
        self.picks += 1
        unfinished = [job for group in self.flying for job in group]
        present = {*waiting, *(tenant for tenant, _ in unfinished)}
        for tenant in present:
            self.accounts.setdefault(tenant, Account(0.0, self.weights[tenant], False))
        order.lift(self.accounts, present, max(account.served for account in self.accounts.values()), self.costs)
        lanes = [
            lane(tenant, adapter, seq=n, depth=max(RUN, wanted), cost=self.costs[tenant], waited_s=float(self.picks))
            for tenant in waiting
            for n, adapter in enumerate(self.adapters[tenant])
        ]
        scene = Scene(lanes, self.accounts, {adapter for _, adapter in unfinished}, max_unfinished=self.max_unfinished)
        got = order.choose(scene, wanted, Random(self.seed + self.picks)).lanes
        assert sum(jobs for _, jobs in got) <= wanted
        group = [(lane.tenant, lane.adapter) for lane, jobs in got for _ in range(jobs)]
        opened = {adapter for _, adapter in [*unfinished, *group]} - {BASE}
        assert len(opened) <= max(self.max_unfinished, len({a for _, a in unfinished} - {BASE}))
        self.tokens.update(dict.fromkeys(waiting, 0))
        for tenant, _ in group:
            self.tokens[tenant] += int(self.costs[tenant])
        self.flying.append(group)
        if len(self.flying) > self.lag:
            self.flying.pop(0)
        return {tenant for tenant, _ in group}


@st.composite
def backlogs(draw: st.DrawFn, /, **changes: st.SearchStrategy[object]) -> Backlog:
    names = [f"t{n}" for n in range(draw(st.integers(2, 8)))]
    numbers = iter(range(1, 1000))
    return Backlog(
        {name: draw(st.sampled_from([0.5, 1.0, 2.0, 3.0])) for name in names},
        {name: draw(st.sampled_from([4.0, 10.0, 60.0, 200.0])) for name in names},
        {name: [next(numbers) for _ in range(draw(st.integers(1, 3)))] for name in names},
        seed=draw(st.integers(0, 1000)),
        **{name: draw(strategy) for name, strategy in changes.items()},  # type: ignore[arg-type]
    )


@stories
@given(backlogs(), st.integers(1, 40))
def test_while_all_are_backlogged_service_follows_the_weights(backlog: Backlog, wanted: int) -> None:
    """At every moment any two tenants' weighted service differs by at most one job of each."""
    names = list(backlog.weights)
    for _ in range(40):
        backlog.pick(names, wanted)
        shares = {name: backlog.tokens[name] / backlog.weights[name] for name in names}
        most = max(backlog.costs[name] / backlog.weights[name] for name in names)
        assert max(shares.values()) - min(shares.values()) <= most + 1e-6


@stories
@given(backlogs(), st.integers(1, 20), st.integers(1, 30))
def test_idleness_earns_no_credit_only_a_bounded_advance(backlog: Backlog, wanted: int, away: int) -> None:
    """Who comes back gets its share from then on, and never more than `AHEAD_JOBS` and one job of each before it."""
    sleeper, *others = list(backlog.weights)
    backlog.pick([sleeper, *others], wanted)
    for _ in range(away):
        backlog.pick(others, wanted)
    before = Counter(backlog.tokens)
    advance = AHEAD_JOBS * backlog.costs[sleeper] / backlog.weights[sleeper]
    slack = 2 * max(backlog.costs[n] / backlog.weights[n] for n in backlog.weights)
    for _ in range(20):
        backlog.pick([sleeper, *others], wanted)
        share = {n: (backlog.tokens[n] - before[n]) / backlog.weights[n] for n in backlog.weights}
        assert share[sleeper] <= min(share[n] for n in others) + advance + slack


def test_who_comes_back_goes_first_and_pays_it_back() -> None:
    backlog = Backlog({"old": 1.0, "new": 1.0}, {"old": 10.0, "new": 10.0}, {"old": [1], "new": [2]}, seed=1)
    backlog.pick(["old"], 10)
    before = Counter(backlog.tokens)
    backlog.pick(["old", "new"], AHEAD_JOBS + 8)
    assert backlog.tokens["new"] - before["new"] == AHEAD_JOBS * 10
    for _ in range(8):
        backlog.pick(["old", "new"], 10)
    assert abs(backlog.tokens["new"] + before["old"] - backlog.tokens["old"]) <= 10


def test_going_away_and_coming_back_buys_no_second_advance() -> None:
    backlog = Backlog({"old": 1.0, "new": 1.0}, {"old": 10.0, "new": 10.0}, {"old": [1], "new": [2]}, seed=1)
    backlog.pick(["old"], 10)
    before = Counter(backlog.tokens)
    for _ in range(10):
        backlog.pick(["old", "new"], 16)
        backlog.pick(["old"], 1)
    ahead = backlog.tokens["new"] - (backlog.tokens["old"] - before["old"])
    assert ahead <= (AHEAD_JOBS + 1) * 10


def test_beyond_what_is_wanted_only_those_ahead_are_sent() -> None:
    new = Account(50.0, 1.0, True, ahead_until=80.0)
    scene = Scene([lane("old", 1), lane("new", 2)], {"old": Account(50.0, 1.0, True), "new": new})
    choice = order.choose(scene, 0, Random(0), ahead=20)
    assert [(one.tenant, jobs) for one, jobs in choice.lanes] == [("new", 3)]
    assert choice.ahead == 3


def test_a_blocked_tenant_that_is_ahead_does_not_stop_the_others() -> None:
    blocked = Account(50.0, 1.0, True, ahead_until=80.0)
    scene = Scene(
        [lane("old", 1), lane("new", 2)],
        {"old": Account(50.0, 1.0, True), "new": blocked},
        unfinished={1},
        max_unfinished=1,
    )
    assert [one.tenant for one, _ in order.choose(scene, 4, Random(0)).lanes] == ["old"]


@stories
@given(backlogs(lag=st.integers(0, 3), max_unfinished=st.integers(1, 6)), st.integers(1, 30))
def test_no_tenant_waits_without_bound_whatever_the_cap_on_adapters(backlog: Backlog, wanted: int) -> None:
    """A blocked tenant is overtaken by a bounded amount; then all wait for it until an adapter has finished."""
    names = list(backlog.weights)
    waited = Counter(dict.fromkeys(names, 0))
    for _ in range(120):
        served = backlog.pick(names, wanted)
        for name in names:
            waited[name] = 0 if name in served else waited[name] + 1
        dearest = max(backlog.costs[n] / backlog.weights[n] for n in names)
        cheapest = min(backlog.costs[n] / backlog.weights[n] for n in names)
        tokens_before = (OVERTAKING_JOBS + 2) * len(names) * dearest
        assert max(waited.values()) <= tokens_before / cheapest + (backlog.lag + 2) * len(names)


def test_jobs_go_one_by_one_to_the_least_served_and_lanes_stay_together() -> None:
    scene = Scene([lane("a", 1), lane("b", 2, cost=20)], accounts(a=0, b=25))
    assert chosen(scene, 6) == [("a", 1, 5), ("b", 2, 1)]


def test_a_lane_gives_no_more_than_it_is_known_to_have() -> None:
    assert chosen(Scene([lane("a", 1, depth=2), lane("b", 2)], accounts(a=0, b=900)), 6) == [("a", 1, 2), ("b", 2, 4)]


def test_within_a_tenant_the_oldest_lane_goes_first_unless_another_is_at_hand() -> None:
    lanes = [lane("a", 1, waited_s=9), lane("a", 2, waited_s=6)]
    assert chosen(Scene(lanes, accounts(a=0)), 1) == [("a", 1, 1)]
    assert chosen(Scene(lanes, accounts(a=0), resident=[2]), 1) == [("a", 2, 1)]
    assert chosen(Scene([lane("a", 1, waited_s=60), lanes[1]], accounts(a=0), resident=[2]), 1) == [("a", 1, 1)]


def test_a_blocked_tenant_is_overtaken_by_a_bounded_amount_only() -> None:
    lanes = [lane("open", 1, depth=500), lane("blocked", 2)]
    scene = Scene(lanes, accounts(open=0, blocked=0), unfinished=[1], max_unfinished=1)
    assert chosen(scene, 400) == [("open", 1, OVERTAKING_JOBS + 1)]


def test_the_bare_base_needs_no_place_under_the_cap() -> None:
    scene = Scene([lane("a", BASE), lane("b", 2)], accounts(a=0, b=0), unfinished=[1], max_unfinished=1)
    assert chosen(scene, 4) == [("a", BASE, 4)]


def test_equal_counters_are_drawn_by_lot() -> None:
    def first(seed: int) -> str:
        return chosen(Scene([lane("a", 1), lane("b", 2)], accounts(a=0, b=0)), 1, seed)[0][0]

    assert {first(seed) for seed in range(20)} == {"a", "b"}


def test_the_pace_forgets() -> None:
    pace = Pace()
    for second in range(100):
        pace.note(50, float(second))
    assert 45 < pace.jobs_per_s < 51
    for second in range(100, 200):
        pace.note(0, float(second))
    assert pace.jobs_per_s < 1
