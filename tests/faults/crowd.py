"""The processes of a long run and their supervisor: who dies is started again, as systemd or compose would do."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass
from typing import Any

from registry.errors import Unavailable
from tests.e2e.crew import Member
from tests.faults.cluster import Cluster

RESTART_S = 0.5


@dataclass
class Post:
    """A place that has to be filled, and who fills it."""

    kind: str
    device: str = ""
    member: Member | None = None
    vacant_from_s: float = 0.0


class Crowd:
    """Two dispatchers, three workers, two io workers. Call `tend` often, from the main thread."""

    def __init__(self, cluster: Cluster, *, workers: int = 3) -> None:
        self._cluster = cluster
        self._devices = itertools.count()
        self.posts = [Post("dispatcher"), Post("dispatcher"), Post("io"), Post("io")]
        self.posts += [Post("worker", str(next(self._devices))) for _ in range(workers)]

    def tend(self) -> None:
        """Fill every post that has been vacant for a moment."""
        for post in self.posts:
            if post.member is not None and post.member.process.poll() is not None:
                post.member, post.vacant_from_s = None, time.monotonic()
            if post.member is None and time.monotonic() >= post.vacant_from_s + RESTART_S:
                post.member = self._fill(post)

    def _fill(self, post: Post) -> Member:
        if post.kind == "dispatcher":
            return self._cluster.crew.dispatcher()
        if post.kind == "io":
            return self._cluster.crew.start("workers.main", "io")
        return self._cluster.victim(post.device, wait=False)

    def alive(self, kind: str) -> list[Post]:
        """Posts of this kind that are filled."""
        return [post for post in self.posts if post.kind == kind and post.member and post.member.process.poll() is None]

    def working(self) -> list[Post]:
        """Workers that take jobs. None, while nobody can tell."""
        try:
            return [p for p in self.alive("worker") if p.member and self._row(p).get("state") == "ready"]
        except Unavailable:
            return []

    def busy(self) -> list[Post]:
        """Workers with jobs in their engines."""
        return [post for post in self.working() if self._row(post).get("live", 0) > 0]

    def _row(self, post: Post) -> dict[str, Any]:
        assert post.member is not None
        return self._cluster.crew.worker_row(post.member)

    def row_id(self, post: Post) -> object:
        """The worker's row."""
        return self._row(post).get("id")

    def kill(self, post: Post) -> None:
        """SIGKILL; `tend` fills the post again under the same name."""
        assert post.member is not None
        post.member.kill()

    def abandon(self, post: Post) -> None:
        """SIGKILL; somebody of another name comes, so that only the lease tells of the death."""
        self.kill(post)
        post.device = str(next(self._devices))

    def one_of(self, dice: random.Random, kind: str) -> Post | None:
        """Somebody of this kind."""
        found = self.alive(kind)
        return dice.choice(found) if found else None
