"""Random kills under load, each measured: who died, and how long until what it held went on elsewhere."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text

from registry.errors import Unavailable
from tests.faults.cluster import Cluster
from tests.faults.crowd import Crowd, Post

_HELD = text("SELECT id, fence FROM jobs WHERE worker = :worker AND state = 'running'")
_STUCK = text("""
SELECT count(*) FROM unnest(cast(:ids AS uuid[]), cast(:fences AS integer[])) AS held (id, fence)
JOIN jobs ON jobs.id = held.id AND jobs.fence = held.fence AND jobs.finished_at IS NULL
""")
_NOW = text("SELECT clock_timestamp()")
_CLAIMING = text("SELECT count(DISTINCT worker) FROM jobs WHERE worker = ANY(:workers) AND claimed_at > :since")
_SETTLING = text("SELECT count(*) FROM jobs WHERE finished_at > :since AND state = 'succeeded'")
GIVE_UP_S = 120.0


@dataclass
class Recovery:
    """A dead worker's jobs that nobody has claimed since."""

    since_s: float
    ids: list[uuid.UUID]
    fences: list[int]
    counts: bool


@dataclass
class Measured:
    """Seconds of each kind of fault, in order."""

    kills: dict[str, int] = field(default_factory=dict)
    worker_recovery_s: list[float] = field(default_factory=list)
    worker_recovery_beside_others_s: list[float] = field(default_factory=list)
    redis_resume_s: list[float] = field(default_factory=list)
    postgres_resume_s: list[float] = field(default_factory=list)
    sigterm_exit_s: list[float] = field(default_factory=list)
    sigterm_codes: list[int] = field(default_factory=list)
    orphans: int = 0


class Killer:
    """Kills by dice. Everything happens in the caller's thread, which also tends the crowd."""

    def __init__(self, cluster: Cluster, crowd: Crowd, seed: int, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._crowd = crowd
        self._dice = random.Random(seed)
        self._say = say
        self._pending: list[Recovery] = []
        self.measured = Measured()

    def run(self, count: int, weights: dict[str, int], *, every_s: tuple[float, float], timed: bool) -> None:
        """`count` kills. `timed`: what these kills leave behind counts for `worker_recovery_s`."""
        while count:
            self.idle(self._dice.uniform(*every_s))
            kind = self._dice.choices(list(weights), list(weights.values()))[0]
            if self._strike(kind, timed=timed):
                count -= 1
                self.measured.kills[kind] = self.measured.kills.get(kind, 0) + 1
                self._say(f"killed {kind}")

    def idle(self, for_s: float) -> None:
        """Let time pass: posts are filled, recoveries are watched."""
        until_s = time.monotonic() + for_s
        while True:
            self._crowd.tend()
            self._watch()
            if time.monotonic() >= until_s:
                return
            time.sleep(0.1)

    def finish(self) -> None:
        """Wait for every recovery; what is not back in time is an orphan."""
        until_s = time.monotonic() + GIVE_UP_S
        while self._pending and time.monotonic() < until_s:
            self.idle(0.2)
        self.measured.orphans += sum(len(pending.ids) for pending in self._pending)
        self._pending.clear()

    def sigterm(self, *, slow: bool) -> None:
        """A worker is told to go under load. `slow`: with jobs that outlast the grace."""
        device = f"leaver-{len(self.measured.sigterm_exit_s)}"
        member = self._cluster.victim(device, wait=False, **({"LORRY_FAKE_STEP_MS": "1500"} if slow else {}))
        self.until(lambda: self._cluster.crew.worker_row(member).get("live", 0) > 0)
        member.terminate()
        begun = time.monotonic()
        self.until(lambda: member.process.poll() is not None)
        self.measured.sigterm_exit_s.append(time.monotonic() - begun)
        self.measured.sigterm_codes.append(member.exit_code())

    def until(self, look: Callable[[], Any], within_s: float = GIVE_UP_S) -> float:
        """Let time pass until something is so; how long it took, `within_s` if it never was."""
        begun = time.monotonic()
        while time.monotonic() - begun < within_s:
            try:
                if look():
                    break
            except Unavailable:
                pass
            self.idle(0.0)
            time.sleep(0.05)
        return time.monotonic() - begun

    def _strike(self, kind: str, *, timed: bool) -> bool:
        if kind == "worker":
            return self._kill_worker(timed=timed)
        if kind == "redis":
            return self._kill_redis()
        if kind == "postgres":
            return self._kill_postgres()
        post = self._crowd.one_of(self._dice, kind)
        if post is not None:
            self._crowd.kill(post)
        return post is not None

    def _kill_worker(self, *, timed: bool) -> bool:
        busy = self._crowd.busy()
        if not busy or len(self._crowd.working()) < 2:
            return False
        post: Post = self._dice.choice(busy)
        worker = self._crowd.row_id(post)
        abandoned = self._dice.random() < 0.3
        (self._crowd.abandon if abandoned else self._crowd.kill)(post)
        with self._cluster.db.transaction() as session:
            held = session.execute(_HELD, {"worker": worker}).all()
        if held:
            self._pending.append(Recovery(time.monotonic(), [r.id for r in held], [r.fence for r in held], timed))
        return True

    def _kill_redis(self) -> bool:
        self._cluster.valkey.kill()
        if self._dice.random() < 0.5:
            self._cluster.valkey.forget()
        self.idle(self._dice.uniform(0, 2))
        self._cluster.valkey.start()
        since = self._now()
        self.measured.redis_resume_s.append(self.until(lambda: self._all_claim(since)))
        return True

    def _all_claim(self, since: Any) -> bool:
        """Whether every post of a worker is filled by one that has claimed since then."""
        workers = [self._crowd.row_id(post) for post in self._crowd.working()]
        wanted = sum(post.kind == "worker" for post in self._crowd.posts)
        return len(workers) == wanted == self._number(_CLAIMING, {"workers": workers, "since": since})

    def _kill_postgres(self) -> bool:
        if self._dice.random() < 0.5:
            self._cluster.postgres.kill()
        else:
            self._cluster.postgres.stop_immediately()
        self.idle(self._dice.uniform(0, 2))
        self._cluster.postgres.start()
        values = {"since": self._now()}
        self.measured.postgres_resume_s.append(self.until(lambda: self._number(_SETTLING, values) > 0))
        return True

    def _now(self) -> Any:
        with self._cluster.db.transaction() as session:
            return session.scalar(_NOW)

    def _number(self, statement: Any, values: dict[str, Any]) -> int:
        with self._cluster.db.transaction() as session:
            return int(session.scalar(statement, values) or 0)

    def _watch(self) -> None:
        try:
            for pending in list(self._pending):
                if self._number(_STUCK, {"ids": pending.ids, "fences": pending.fences}) == 0:
                    self._pending.remove(pending)
                    kept = self.measured.worker_recovery_s
                    if not pending.counts:
                        kept = self.measured.worker_recovery_beside_others_s
                    kept.append(time.monotonic() - pending.since_s)
        except Unavailable:
            return
