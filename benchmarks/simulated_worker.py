"""One GPU worker in virtual time: the product's policy and books, and an engine whose steps cost what a model says.

Between two events all live jobs advance by one token a step; a step's length changes only when jobs enter or leave, so
that whole stretches of steps are one event.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from registry.sizing import CostModel
from workers import policy
from workers.policy import Head, Rules
from workers.slots import Slots

LOOK_S = 0.25
"""How often the policy is asked when only time passes (`workers.planner` looks oftener; nothing here hangs on it)."""


@dataclass(slots=True, eq=False)
class Job:
    """One job; its tenant is its adapter's."""

    seq: int
    adapter: int
    arrived_s: float
    output_tokens: int
    prompt_tokens: int = 0
    turn: int = 0
    admitted_s: float = 0.0

    @property
    def tokens(self) -> int:
        """What its tenant is served."""
        return self.prompt_tokens + self.output_tokens


class SimulatedWorker:
    """`hold` jobs, `advance` to a time, `decide`; `due_s` is when to come back."""

    def __init__(self, cost: CostModel, rules: Rules, ended: Callable[[Job, float], None]) -> None:
        self._cost, self._rules, self._ended = cost, rules, ended
        self.slots = Slots(rules.max_loras)
        self.swaps = 0
        self.returned: list[Job] = []
        self._waiting = 0
        self._queues: dict[int, deque[Job]] = {}
        self._slotless_from_s: dict[int, float] = {}
        self._live: list[tuple[float, int, Job]] = []
        self._serial = itertools.count()
        self._steps = 0.0
        self._at_s = 0.0
        self._loading: int | None = None
        self._loaded_s = 0.0
        self._crowded_from_s: float | None = None

    @property
    def held(self) -> int:
        """Jobs that this worker has claimed."""
        return self._waiting + len(self._live)

    def hold(self, job: Job, now_s: float) -> None:
        """Take a job."""
        queue = self._queues.setdefault(job.adapter, deque())
        self._slotless_from_s.setdefault(job.adapter, now_s)
        if queue and queue[-1].turn > job.turn:
            insort(queue, job, key=lambda other: other.turn)
        else:
            queue.append(job)
        self._waiting += 1

    def advance(self, now_s: float) -> None:
        """Let the engine run until now: end what is through, complete the swap."""
        if self._loading is not None:
            if now_s < self._loaded_s:
                self._at_s = now_s
                return
            self.slots.entered(self._loading, self._loaded_s)
            self._at_s, self._loading = self._loaded_s, None
        while self._live:
            step_s = self._cost.step_s(len(self._live))
            through_s = self._at_s + (self._live[0][0] - self._steps) * step_s
            if through_s > now_s + 1e-9:
                self._steps += (now_s - self._at_s) / step_s
                break
            self._steps, self._at_s = self._live[0][0], through_s
            _, _, job = heapq.heappop(self._live)
            self.slots.release(job.adapter, through_s)
            self._ended(job, through_s)
        self._at_s = now_s

    def due_s(self) -> float | None:
        """When something happens here by itself; None when nothing does."""
        if self._loading is not None:
            return self._loaded_s
        look_s = self._at_s + LOOK_S if self._waiting else None
        if not self._live:
            return look_s
        through_s = self._at_s + (self._live[0][0] - self._steps) * self._cost.step_s(len(self._live))
        return through_s if look_s is None else min(look_s, through_s)

    def decide(self) -> None:
        """Do everything that the policy wants done now."""
        while self._waiting and not self._nothing_to_decide:
            match self._decision():
                case policy.Admit(adapter=adapter):
                    self._admit(adapter)
                case policy.SwapIn(adapter=adapter, evict=evict):
                    self._swap(adapter, evict)
                case policy.GiveBack(adapter=adapter):
                    self._give_back(adapter)
                case None:
                    return

    @property
    def _nothing_to_decide(self) -> bool:
        """The engine is full and nobody wants a slot: most moments of a busy worker. Only spares the asking."""
        if len(self._live) < self._rules.max_live:
            return False
        return self._loading is not None or self._queues.keys() <= self.slots.resident

    def _decision(self) -> policy.Decision | None:
        now_s, live = self._at_s, len(self._live)
        heads = self._heads(now_s)
        turns = {head.adapter: head.turn for head in heads}
        crowded = self.held >= self._rules.max_held and live < self._rules.max_live
        self._crowded_from_s = (self._crowded_from_s or now_s) if crowded else None
        crowded_s = now_s - (self._crowded_from_s or now_s)
        views = self.slots.views(now_s, turns)
        return policy.decide(heads, views, live, self._rules, loading=self._loading, crowded_s=crowded_s)

    def _heads(self, now_s: float) -> list[Head]:
        """Of the adapters in slots, the longest waiting others, and the last one: more cannot change a decision, since
        no rule looks at more waiting adapters than there are slots, but they would be most of a run's time."""
        resident = self.slots.resident
        outside = [adapter for adapter in self._slotless_from_s if adapter not in resident]
        most = 2 * self._rules.max_loras
        shown = [*resident.intersection(self._queues), *outside[:most], *outside[most:][-1:]]
        return [
            Head(queue[0].seq, adapter, queue[0].turn, now_s - self._slotless_from_s[adapter])
            for adapter in shown
            for queue in (self._queues[adapter],)
        ]

    def _admit(self, adapter: int) -> None:
        self.slots.admit(adapter, self._at_s)
        job = self._queues[adapter].popleft()
        if not self._queues[adapter]:
            del self._queues[adapter], self._slotless_from_s[adapter]
        self._waiting -= 1
        job.admitted_s = self._at_s
        # The first step reads the prompt.
        heapq.heappush(self._live, (self._steps + job.output_tokens + 1, next(self._serial), job))

    def _swap(self, adapter: int, evict: int | None) -> None:
        if evict is not None:
            self.slots.left(evict)
            if evict in self._queues:  # it waits anew, behind all others; the dict's order is that of waiting
                del self._slotless_from_s[evict]
                self._slotless_from_s[evict] = self._at_s
        self.swaps += 1
        self._loading, self._loaded_s = adapter, self._at_s + self._cost.swap_s

    def _give_back(self, adapter: int) -> None:
        jobs = self._queues.pop(adapter)
        del self._slotless_from_s[adapter]
        self._waiting -= len(jobs)
        self._crowded_from_s = None
        self.returned += jobs
