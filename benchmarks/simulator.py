"""Lorry in virtual time: the product's own order and policy over a cost model, event by event. No clock, no I/O.

`registry/backlog/order.py` picks, `workers/policy.py` decides, `workers/slots.py` keeps the books; what is simulated is
the engine (`CostModel`), the queue between dispatcher and workers, and time. A tenant has one adapter.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from benchmarks.ratios import jain
from benchmarks.simulated_worker import Job, SimulatedWorker
from registry.backlog import order
from registry.backlog.order import Account, Lane, Scene
from registry.backlog.pick import ADAPTERS_PER_SLOT
from registry.sizing import CostModel
from workers.flow import MAX_UNCLAIMED
from workers.policy import Rules

MIN_UNCLAIMED = 32
UNCLAIMED_PER_WORKER = 3
"""About what `workers.flow` keeps ready; refilled when half is gone."""
TICK_S = 0.03
BLOCKED_TICK_S = 0.25
"""When a pick found less than it wanted: little changes sooner, and the real dispatcher's looks cost nothing here."""
RUN = 8
"""The fewest jobs of a lane that a pick looks at, as in `registry.backlog.pick`."""
NEVER_S = float("inf")


@dataclass(slots=True)
class Result:
    """A run's end. `waits_s`: from arrival to the engine. `fairness`: Jain's index of tokens served by half time."""

    seconds: float = 0.0
    jobs: int = 0
    tokens: int = 0
    swaps: int = 0
    waits_s: list[float] = field(default_factory=list)
    fairness: float = 1.0


class Simulation:
    """`run` once."""

    def __init__(self, cost: CostModel, rules: Rules, workers: int, jobs: Sequence[Job], seed: int = 0) -> None:
        """`jobs` in order of arrival."""
        self._jobs, self._next = jobs, 0
        self._rules = rules
        self._random = Random(seed)
        self._workers = [SimulatedWorker(cost, rules, self._ended) for _ in range(workers)]
        self._due: list[tuple[float, int, int]] = []
        self._versions = [0] * workers
        self._hungry = deque(range(workers))
        self._queued: dict[int, deque[Job]] = {}
        self._unclaimed: deque[Job] = deque()
        self._unfinished: Counter[int] = Counter()
        self._accounts = {f"{job.adapter}": Account(0.0, 1.0, active=False) for job in jobs}
        self._served = dict.fromkeys(self._accounts, 0)
        self._whole = sum(job.tokens for job in jobs)
        self._mean_tokens = self._whole / len(jobs)
        self._turn = 0
        self._pause_s = TICK_S
        self._in_flight = 0
        self._now_s = self._ticked_s = 0.0
        self.result = Result()

    def run(self) -> Result:
        """Until the last job has ended."""
        while self.result.jobs < len(self._jobs):
            tick_s = self._next_tick_s()
            while self._due and self._due[0][2] != self._versions[self._due[0][1]]:
                heapq.heappop(self._due)
            if self._due and self._due[0][0] < tick_s:
                self._now_s, number, _ = heapq.heappop(self._due)
                self._move(number)
            else:
                self._now_s = self._ticked_s = tick_s
                self._tick()
        self.result.swaps = sum(worker.swaps for worker in self._workers)
        self.result.waits_s = [job.admitted_s - job.arrived_s for job in self._jobs]
        return self.result

    def _next_tick_s(self) -> float:
        """The dispatcher ticks while it has something to send; else it sleeps until somebody submits."""
        due_s = self._ticked_s + self._pause_s
        if self._queued and len(self._unclaimed) <= self._target // 2:
            return max(due_s, self._now_s)
        return max(due_s, self._now_s, self._jobs[self._next].arrived_s) if self._next < len(self._jobs) else NEVER_S

    @property
    def _target(self) -> int:
        """How many messages may lie unclaimed: what free places take, and a few more."""
        free = self._rules.max_held * len(self._workers) - self._in_flight
        return max(MIN_UNCLAIMED, min(MAX_UNCLAIMED, max(free, UNCLAIMED_PER_WORKER * len(self._workers))))

    def _tick(self) -> None:
        while self._next < len(self._jobs) and self._jobs[self._next].arrived_s <= self._now_s:
            self._queue(self._jobs[self._next])
            self._next += 1
        if self._queued and len(self._unclaimed) <= self._target // 2:
            self._pick(self._target - len(self._unclaimed))
        self._hand_out()

    def _hand_out(self) -> None:
        """Who has waited longest for a message gets one."""
        fed = set()
        while self._unclaimed and self._hungry:
            number = self._hungry.popleft()
            if number not in fed:
                self._workers[number].advance(self._now_s)
                fed.add(number)
            if self._workers[number].held < self._rules.max_held:
                self._workers[number].hold(self._unclaimed.popleft(), self._now_s)
                self._hungry.append(number)
        for number in fed:
            self._settle(number)

    def _move(self, number: int) -> None:
        worker = self._workers[number]
        worker.advance(self._now_s)
        while self._unclaimed and worker.held < self._rules.max_held:
            worker.hold(self._unclaimed.popleft(), self._now_s)
        if not self._unclaimed and worker.held < self._rules.max_held and number not in self._hungry:
            self._hungry.append(number)
        self._settle(number)

    def _settle(self, number: int) -> None:
        """Let a worker decide, take what it gives back, and note when it is to be looked at again."""
        worker = self._workers[number]
        worker.decide()
        for job in worker.returned:
            self._let_go(job)
            self._queue(job)
        worker.returned.clear()
        self._versions[number] += 1
        due_s = worker.due_s()
        if due_s is not None:
            heapq.heappush(self._due, (due_s, number, self._versions[number]))

    def _queue(self, job: Job) -> None:
        lane = self._queued.setdefault(job.adapter, deque())
        if lane and lane[0].seq > job.seq:
            lane.appendleft(job)
        else:
            lane.append(job)

    def _pick(self, wanted: int) -> None:
        depth = max(RUN, wanted // len(self._queued))
        lanes = [
            Lane(f"{adapter}", adapter, 0, jobs[0].seq, self._now_s - jobs[0].arrived_s, min(len(jobs), depth), cost)
            for cost in (self._mean_tokens,)
            for adapter, jobs in self._queued.items()
        ]
        present = {lane.tenant for lane in lanes} | {f"{adapter}" for adapter in self._unfinished}
        highest = max(account.served for account in self._accounts.values())
        order.lift(self._accounts, present, highest, {lane.tenant: lane.cost for lane in lanes})
        scene = Scene(
            lanes,
            self._accounts,
            unfinished=list(self._unfinished),
            resident=frozenset().union(*(worker.slots.resident for worker in self._workers)),
            max_unfinished=ADAPTERS_PER_SLOT * self._rules.max_loras * len(self._workers),
        )
        chosen = order.choose(scene, wanted, self._random).lanes
        self._pause_s = TICK_S if sum(count for _, count in chosen) == wanted else BLOCKED_TICK_S
        for lane, count in chosen:
            self._dispatch(lane.adapter, count)

    def _dispatch(self, adapter: int, count: int) -> None:
        queue = self._queued[adapter]
        for _ in range(count):
            job = queue.popleft()
            self._turn += 1
            job.turn = self._turn
            self._unfinished[adapter] += 1
            self._in_flight += 1
            self._unclaimed.append(job)
        if not queue:
            del self._queued[adapter]

    def _let_go(self, job: Job) -> None:
        self._in_flight -= 1
        self._unfinished[job.adapter] -= 1
        if not self._unfinished[job.adapter]:
            del self._unfinished[job.adapter]

    def _ended(self, job: Job, at_s: float) -> None:
        """Settled: the charge becomes what was really used."""
        self._let_go(job)
        tenant = f"{job.adapter}"
        self._accounts[tenant].served += job.tokens - self._mean_tokens
        self._served[tenant] += job.tokens
        before = self.result.tokens
        self.result.tokens += job.tokens
        self.result.jobs += 1
        self.result.seconds = max(self.result.seconds, at_s)
        if before < self._whole / 2 <= self.result.tokens:
            self.result.fairness = jain(list(self._served.values()))
