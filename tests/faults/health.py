"""A quiet stretch at full load: nobody may be declared dead, nothing may be claimed twice, memory must stay flat."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil
from sqlalchemy import text

from tests.faults.checker import count
from tests.faults.cluster import Cluster
from tests.faults.crowd import Crowd
from tests.faults.kills import Killer

_DEAD = text("SELECT count(*) FROM workers WHERE state = 'dead'")
_RESCUED = text("SELECT coalesce(sum(crashes), 0) FROM jobs")
_DONE = text("SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL")
_CONNECTIONS = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
WARM_UP = 0.5
"""The part of the stretch after which memory is watched: caches fill first, at last a tokenizer's with 10,000 words."""


@dataclass
class Health:
    """`memory_mb_per_min`: the steepest process; connections of the database, first and last."""

    seconds: float
    false_rescues: int
    jobs_per_s: float
    memory_mb_per_min: float
    connections: tuple[int, int]


def healthy(cluster: Cluster, crowd: Crowd, killer: Killer, for_s: float) -> Health:
    """Let the crowd work undisturbed for so long."""
    for post in crowd.posts:
        if post.kind == "worker":
            killer.until(lambda p=post: p in crowd.working())  # type: ignore[misc]
    # Whoever was killed before is to be declared dead before the count begins.
    killer.idle(cluster.settings.lease_s + 7)
    before = [count(cluster, statement) for statement in (_DEAD, _RESCUED, _DONE)]
    begun = time.monotonic()
    killer.idle(for_s * WARM_UP)
    small, since = memory(cluster), time.monotonic()
    connections = count(cluster, _CONNECTIONS)
    killer.idle(for_s * (1 - WARM_UP))
    large, minutes = memory(cluster), (time.monotonic() - since) / 60
    after = [count(cluster, statement) for statement in (_DEAD, _RESCUED, _DONE)]
    dead, rescued, done = (late - early for late, early in zip(after, before, strict=True))
    seconds = time.monotonic() - begun
    growth = [(large[pid] - small[pid]) / minutes for pid in small.keys() & large.keys()]
    return Health(seconds, dead + rescued, done / seconds, max(growth), (connections, count(cluster, _CONNECTIONS)))


def memory(cluster: Cluster) -> dict[int, float]:
    """Resident MB of every process of the product."""
    living = [member.pid for member in cluster.crew.members if member.process.poll() is None]
    return {pid: psutil.Process(pid).memory_info().rss / 1e6 for pid in living}
