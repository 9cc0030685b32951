"""Who is next over the whole backlog: a pure choice over lanes, no clock, no I/O.

A lane is one tenant's queued jobs of one adapter. Tenants take turns by weighted virtual token counters: the lowest
counter is next, and a job's expected tokens, divided by the tenant's weight, are added as it is chosen. A tenant that
comes back from idleness is lifted to the least active counter: idleness earns no credit. It may borrow, though: up to
`AHEAD_JOBS` of its jobs go ahead of their turn and are paid back, so that a few jobs do not wait beside a flood. Ties
are broken at random.

What a dead worker held goes before all others, whoever's it is: its turn had come. Then, for half of what is left,
jobs whose deadline is near.

Within a tenant the oldest lane goes first; one whose adapter is in use already counts as `HEAD_START_S` older. Adapters
with unfinished jobs are capped, so that what workers hold can be admitted; who is blocked by the cap is overtaken by a
bounded amount of tokens, then everybody waits until an adapter has finished.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

BASE = 0
"""The bare base model needs no slot and no cap."""
HEAD_START_S = 5.0
"""How much older a lane counts whose adapter is in a slot or has unfinished jobs."""
NEAR_S = 30.0
"""A deadline within this is near whatever the wait is expected to be."""
PACE_WINDOW_S = 10.0
OVERTAKING_JOBS = 32
"""By how many of its own jobs' tokens a blocked tenant is overtaken before the others wait for it."""
AHEAD_JOBS = 32
"""How many of its jobs a tenant that comes back from idleness may be served ahead of its turn."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Up to `depth` queued jobs that may be sent now. `cost`: expected tokens of one job."""

    tenant: str
    adapter: int
    priority: int
    seq: int
    """Of the oldest job."""
    waited_s: float
    depth: int
    cost: float


@dataclass(slots=True)
class Account:
    """A tenant's counter. `active`: it had queued or running jobs at the last pick."""

    served: float
    weight: float
    active: bool
    ahead_until: float = 0.0
    """Up to this count the tenant is served ahead of its turn."""

    @property
    def turn(self) -> float:
        """The lower the sooner: negative while ahead, before everybody who is not."""
        return min(self.served - self.ahead_until, 0.0) or self.served


@dataclass(frozen=True, slots=True)
class Due:
    """A queued job with one of the soonest deadlines."""

    job: object
    tenant: str
    adapter: int
    seq: int
    left_s: float


@dataclass(frozen=True, slots=True)
class Rescued:
    """A queued job whose worker or engine died with it. It was charged when it was picked the first time."""

    job: object
    adapter: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What a choice looks at."""

    lanes: Sequence[Lane]
    accounts: Mapping[str, Account]
    """Of every tenant with a lane; counters are charged in place."""
    unfinished: Collection[int] = ()
    """Adapters with dispatched or running jobs."""
    resident: Collection[int] = ()
    """Adapters in some worker's slots."""
    max_unfinished: int = 1 << 30
    rescued: Sequence[Rescued] = ()
    due: Sequence[Due] = ()
    jobs_per_s: float = 0.0
    """How fast jobs were picked lately; 0 when unknown."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Jobs to send by id, then lanes with how many of their oldest jobs to send, in this order."""

    urgent: list[object] = field(default_factory=list)
    lanes: list[tuple[Lane, int]] = field(default_factory=list)
    ahead: int = 0
    """How many of the lanes' jobs are ahead of their turn; they come first."""


@dataclass(slots=True)
class Pace:
    """How many jobs a second were picked lately, forgetting what is older than about `PACE_WINDOW_S`."""

    jobs_per_s: float = 0.0
    noted_at_s: float | None = None

    def note(self, jobs: int, now_s: float) -> None:
        """So many jobs were picked just now."""
        if self.noted_at_s is not None and now_s > self.noted_at_s:
            passed_s = now_s - self.noted_at_s
            share = min(1.0, passed_s / PACE_WINDOW_S)
            self.jobs_per_s += (jobs / passed_s - self.jobs_per_s) * share
        self.noted_at_s = now_s


def lift(accounts: Mapping[str, Account], present: Collection[str], highest: float, costs: Mapping[str, float]) -> None:
    """Bring every tenant that was idle up to the least active counter, and note who is active now.

    `present`: tenants with queued or running jobs. `highest`: the greatest counter of the deployment, which all start
    from when nobody was active. `costs`: expected tokens of one job of each tenant that waits.
    """
    going_on = [accounts[tenant].served for tenant in present if tenant in accounts and accounts[tenant].active]
    floor = min(going_on, default=highest)
    for tenant, account in accounts.items():
        if tenant in present and not account.active:
            account.served = max(account.served, floor)
            account.ahead_until = floor + AHEAD_JOBS * costs.get(tenant, 0.0) / account.weight if going_on else 0.0
        account.active = tenant in present


def choose(scene: Scene, wanted: int, random: Random, ahead: int = 0) -> Choice:
    """What to send next, at most `wanted` jobs, and at most `ahead` more of tenants that are ahead of their turn."""
    order = _Order(scene, random)
    urgent = order.rescued(wanted)
    left = wanted - len(urgent)
    urgent += order.due((max(1, left // 2) if len(scene.lanes) > 1 else left) if left else 0)
    return Choice(urgent, *order.fair(wanted - len(urgent), ahead))


class _Order:
    """One choice under way."""

    def __init__(self, scene: Scene, random: Random) -> None:
        self._scene = scene
        self._random = random
        self._opened = set(scene.unfinished) - {BASE}
        self._taken: dict[Lane, int] = {}
        self._lanes: dict[str, list[Lane]] = {}
        for lane in sorted(scene.lanes, key=self._rank, reverse=True):  # so that the first is the last: pop() takes it
            self._lanes.setdefault(lane.tenant, []).append(lane)

    def _rank(self, lane: Lane) -> tuple[int, float, int]:
        known = lane.adapter in self._opened or lane.adapter in self._scene.resident
        return lane.priority, -(lane.waited_s + HEAD_START_S * known), lane.seq

    def rescued(self, most: int) -> list[object]:
        """What dead workers held, as far as its adapters may be opened; the first place that is free is theirs."""
        chosen: list[object] = []
        for back in self._scene.rescued:
            if len(chosen) < most and self._may_open(back.adapter):
                self._open(back.adapter)
                chosen.append(back.job)
        return chosen

    def due(self, most: int) -> list[object]:
        """Jobs whose deadline is nearer than their expected wait, soonest first. They pay like all others."""
        lanes = {(lane.tenant, lane.adapter): lane for lane in self._scene.lanes}
        lowest = min((self._scene.accounts[tenant].served for tenant in self._lanes), default=0.0)
        chosen: list[object] = []
        for due in self._scene.due:
            lane = lanes.get((due.tenant, due.adapter))
            if len(chosen) == most or lane is None or not self._may_open(lane.adapter):
                continue
            if due.left_s < self._expected_wait_s(due, lane, lowest):
                self._charge(lane)
                chosen.append(due.job)
        return chosen

    def _expected_wait_s(self, due: Due, lane: Lane, lowest: float) -> float:
        """Its place in the lane and its tenant's lead over the least served, at the present pace of a fair share."""
        if not self._scene.jobs_per_s:
            return NEAR_S
        account = self._scene.accounts[due.tenant]
        before = due.seq - lane.seq + (account.served - lowest) * account.weight / max(1.0, lane.cost)
        return max(NEAR_S, before * len(self._lanes) / self._scene.jobs_per_s)

    def fair(self, wanted: int, ahead: int) -> tuple[list[tuple[Lane, int]], int]:
        """Job by job to the least served tenant; then each lane's jobs together, so that adapters come in runs.

        Beside them, how many went ahead of their turn.
        """
        accounts = self._scene.accounts
        heap = [(accounts[tenant].turn, self._random.random(), tenant) for tenant in self._lanes]
        heapq.heapify(heap)
        limit, hurried = float("inf"), 0
        for count in range(wanted + ahead):
            lane = None
            # Those who are ahead have negative turns.
            while lane is None and heap and heap[0][0] <= (limit if count < wanted else -1e-9):
                _, _, tenant = heapq.heappop(heap)
                lane = self._next(tenant)
                if lane is None and self._lanes[tenant]:
                    limit = min(limit, accounts[tenant].served + self._slack(tenant))
            if lane is None:
                break
            hurried += accounts[lane.tenant].turn < 0
            self._taken[lane] = self._taken.get(lane, 0) + 1
            self._charge(lane)
            heapq.heappush(heap, (accounts[lane.tenant].turn, self._random.random(), lane.tenant))
        return list(self._taken.items()), hurried

    def _next(self, tenant: str) -> Lane | None:
        """The tenant's present lane; None when it has no more, or its first one may not be opened."""
        lanes = self._lanes[tenant]
        while lanes and self._taken.get(lanes[-1], 0) >= lanes[-1].depth:
            lanes.pop()
        return lanes[-1] if lanes and self._may_open(lanes[-1].adapter) else None

    def _may_open(self, adapter: int) -> bool:
        open_already = adapter in self._opened or adapter in self._scene.resident or adapter == BASE
        return open_already or len(self._opened) < self._scene.max_unfinished

    def _slack(self, tenant: str) -> float:
        lane, account = self._lanes[tenant][-1], self._scene.accounts[tenant]
        return OVERTAKING_JOBS * lane.cost / account.weight

    def _charge(self, lane: Lane) -> None:
        account = self._scene.accounts[lane.tenant]
        account.served += lane.cost / account.weight
        self._open(lane.adapter)

    def _open(self, adapter: int) -> None:
        if adapter != BASE:
            self._opened.add(adapter)
