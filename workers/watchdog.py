"""Noticing that this worker has to leave: asked to, its engine will not start, it takes nothing, it is too large.

It only looks and says so, once; how the process then ends is `leaving`'s. An engine that hangs is killed: then it is an
engine that died.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from celery import Celery

from registry import queues
from registry.logs import get_logger
from registry.settings import Settings
from workers import family
from workers.leaving import ORDERLY, START_ANEW

LOOK_S = 0.5
MEASURE_S = 5.0
_GIB = 1024**3

_log = get_logger("watchdog")


class Traffic:
    """Jobs in the hands of Celery's threads. `changes` grows whenever one is taken or let go."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.in_hand = 0
        self.changes = 0
        self._lock = threading.Lock()

    @contextmanager
    def job(self) -> Iterator[None]:
        """Count a job for the length of the block."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        with self._lock:
            self.in_hand += step
            self.changes += 1


@dataclass(frozen=True, slots=True)
class Signs:
    """What a worker shows of itself. `asked`: an operator wants it to leave. `failed`: its engine will not start.
    `starting`: its engine is being started again, and nothing is taken meanwhile.

    `call`: asks the engine something easy; the future is set when it has answered, or has said that it cannot. `kill`:
    ends the engine. `idle_with_jobs`: jobs wait here for an engine that runs and has none.
    """

    traffic: Traffic
    asked: threading.Event
    failed: threading.Event
    starting: threading.Event
    call: Callable[[], Future[Any]]
    kill: Callable[[], None]
    idle_with_jobs: Callable[[], bool]


class Wedge:
    """Says when for `after_s`, at every look, no job was taken or let go although some could have been: they waited in
    the queue beside free threads, or here for an idle engine."""

    def __init__(self, traffic: Traffic, after_s: float) -> None:
        self._traffic = traffic
        self._after_s = after_s
        self._since_s: float | None = None
        self._changes = -1
        self._looked_at_s = 0.0

    def is_stuck(self, now_s: float, waiting: int, *, idle_with_jobs: bool = False) -> bool:
        """`waiting`: messages in the queue. A long gap between two looks (a broker that hung) proves nothing."""
        late = now_s - self._looked_at_s > max(3 * MEASURE_S, self._after_s / 2)
        self._looked_at_s = now_s
        moved = self._traffic.changes != self._changes
        self._changes = self._traffic.changes
        takes_none = waiting > 0 and self._traffic.in_hand < self._traffic.capacity
        if late or moved or not (takes_none or idle_with_jobs):
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s >= self._after_s


class Pulse:
    """Says when the engine has not answered for `after_s`: a device that hangs keeps its requests without an error."""

    def __init__(self, call: Callable[[], Future[Any]], after_s: float) -> None:
        self._call = call
        self._after_s = after_s
        self._answer: Future[Any] | None = None
        self._called_at_s = self._looked_at_s = 0.0

    def is_lost(self, now_s: float) -> bool:
        """Look for the last call's answer, or call again. A long gap between two looks proves nothing: we slept."""
        late = now_s - self._looked_at_s > max(3 * MEASURE_S, self._after_s / 2)
        self._looked_at_s = now_s
        if self._answer is None or self._answer.done():
            self._answer = self._call()
            late = True
        if late:
            self._called_at_s = now_s
        lost = now_s - self._called_at_s >= self._after_s
        if lost:
            self._answer = None
        return lost


class Watchdog:
    """One thread. `leave(code, why)` is called at most once."""

    def __init__(
        self,
        settings: Settings,
        celery: Celery,
        deployment: str,
        signs: Signs,
        leave: Callable[[int, str], None],
    ) -> None:
        self._celery = celery
        self._deployment = deployment
        self._signs = signs
        self._leave = leave
        self._wedge = Wedge(signs.traffic, settings.wedged_after_s)
        self._pulse = Pulse(signs.call, settings.wedged_after_s)
        limit_gib = settings.worker_rss_limit_gib
        self._limit_bytes = None if limit_gib is None else int(limit_gib * _GIB)
        self._every_s = min(MEASURE_S, settings.wedged_after_s / 4)
        self._due_s = 0.0
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def _run(self) -> None:
        while (reason := self._seen()) is None:
            time.sleep(LOOK_S)
        self._leave(*reason)

    def _seen(self) -> tuple[int, str] | None:
        """A look that breaks off has seen nothing, and the next one comes all the same."""
        try:
            return self._reason(time.monotonic())
        except Exception as error:  # noqa: BLE001
            _log.error("a look at this worker broke off", error=type(error).__name__)
            return None

    def _reason(self, now_s: float) -> tuple[int, str] | None:
        if self._signs.asked.is_set():
            return ORDERLY, "an operator asked it to drain"
        if self._signs.failed.is_set():
            return START_ANEW, "its engine does not start any more"
        if now_s < self._due_s:
            return None
        self._due_s = now_s + self._every_s
        if self._limit_bytes is not None and family.resident_bytes(os.getpid()) > self._limit_bytes:
            return START_ANEW, "its memory has grown beyond LORRY_WORKER_RSS_LIMIT_GIB"
        if self._pulse.is_lost(now_s):
            self._signs.kill()
        if self._wedge.is_stuck(now_s, self._waiting(), idle_with_jobs=self._signs.idle_with_jobs()):
            return START_ANEW, "it takes nothing from a queue that has jobs, or runs none of those it holds"
        return None

    def _waiting(self) -> int:
        """Messages that could be taken."""
        if self._signs.starting.is_set():
            return 0
        try:
            return queues.length(self._celery, self._deployment)
        except queues.AWAY:
            return 0
