"""Dispatchers that die, also between a commit and its messages: a spare takes over, and nothing is forgotten."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial

from sqlalchemy import text

from registry.failpoints import EXIT_CODE
from tests.e2e.crew import eventually
from tests.faults.checker import count, settled
from tests.faults.cluster import Cluster, took
from tests.faults.conftest import Standing

TAKE_OVER_S = 5.0
_CLAIMED = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND fence > 0")


def claimed(cluster: Cluster, jobs: Sequence[uuid.UUID], least: int) -> bool:
    """Whether at least so many of these jobs have been given to a worker."""
    return count(cluster, _CLAIMED, ids=jobs) >= least


def test_a_spare_takes_over_within_seconds_whoever_led(standing: Standing) -> None:
    cluster = standing.cluster
    for number in range(len(standing.dispatchers)):
        standing.dispatchers[number].kill()
        jobs = cluster.load.submit(20)
        assert took(partial(claimed, cluster, jobs, 1), within_s=TAKE_OVER_S) < TAKE_OVER_S
        standing.dispatchers[number] = cluster.crew.dispatcher()
        eventually(partial(claimed, cluster, jobs, len(jobs)))
    settled(cluster)


def test_one_that_dies_between_commit_and_send_leaves_messages_that_are_found_missing(standing: Standing) -> None:
    cluster = standing.cluster
    while standing.dispatchers:
        standing.dispatchers.pop().kill()
    fated = cluster.crew.dispatcher(LORRY_FAILPOINT="after_pick_commit")
    cluster.load.submit(50)
    assert fated.exit_code() == EXIT_CODE
    standing.dispatchers += [cluster.crew.dispatcher(), cluster.crew.dispatcher()]
    settled(cluster)
