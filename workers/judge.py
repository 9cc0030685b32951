"""Asks the policy: gathers what it looks at and hands its answers on. Decides and does nothing itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from workers import policy, waits
from workers.engine_work import EngineWork
from workers.held import WaitingRoom
from workers.loader import Loader
from workers.policy import Decision, Rules, SwapIn
from workers.runs import Runs
from workers.slots import Slots


class Judge:
    """One planner's view of its jobs and its engine. On the engine's loop only."""

    def __init__(
        self, rules: Rules, waiting: WaitingRoom, slots: Slots, runs: Runs, loader: Loader, work: EngineWork
    ) -> None:
        self._rules = rules
        self._waiting = waiting
        self._slots = slots
        self._runs = runs
        self._loader = loader
        self._work = work
        self._crowded_from_s: float | None = None

    def decide(self) -> Decision | None:
        """The next thing to do, if any."""
        now_s = time.monotonic()
        full = len(self._waiting) + len(self._runs) >= self._rules.max_held
        crowded = full and len(self._runs) < self._rules.max_live
        self._crowded_from_s = (self._crowded_from_s or now_s) if crowded else None
        decision = policy.decide(**self._scene(now_s), crowded_s=now_s - (self._crowded_from_s or now_s))
        if self._work.busy and isinstance(decision, SwapIn):
            return None  # a scrub or an audit is under way and short; the swap waits for it
        if decision is not None:
            self._crowded_from_s = None
        return decision

    def reasons(self) -> Mapping[int, str]:
        """What each adapter's waiting jobs wait for."""
        return waits.reasons(**self._scene(time.monotonic()))

    def next_load(self) -> int:
        """The adapter to read ahead; BASE for none."""
        scene = self._scene(time.monotonic())
        return policy.next_load(scene["heads"], scene["slots"], scene["live"], self._rules, scene["loading"])

    def _scene(self, now_s: float) -> dict[str, Any]:
        return {
            "heads": self._waiting.heads(now_s),
            "slots": self._slots.views(now_s, self._waiting.next_turns(), self._loader.backlog),
            "live": self._slots.live,
            "rules": self._rules,
            "loading": self._work.loading,
            "alone": self._runs.one_is_alone,
            "room": self._runs.room(),
        }
