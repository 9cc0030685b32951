"""A broker that forgets, dies, hangs, is full, or says everything five times: rows 10 to 14 of the plan."""

from __future__ import annotations

import random
import time
import uuid

import pytest
from sqlalchemy import text

from registry import ids, queues
from tests.e2e.crew import eventually
from tests.faults.checker import count, settled
from tests.faults.cluster import Cluster, took
from tests.faults.conftest import Standing
from workers.leaving import START_ANEW

RESUME_S = 15.0
_CLAIMED_TWICE = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND fence <> 1")
_CLAIMED = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND fence > 0")
_DONE = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND finished_at IS NOT NULL")


def resumes(cluster: Cluster, jobs: list[uuid.UUID]) -> None:
    """Work goes on within the promised time, seen by progress, and to the end."""
    before = count(cluster, _DONE, ids=jobs)
    assert before < len(jobs), "the fault came too late to prove anything"
    assert took(lambda: count(cluster, _DONE, ids=jobs) > before, within_s=RESUME_S) < RESUME_S
    settled(cluster)


def test_row_10_a_job_longer_than_the_visibility_timeout_runs_once(cluster: Cluster) -> None:
    cluster.world.base("Slow")
    worker = cluster.crew.start(
        "tests.faults.entry",
        "short_visibility",
        "gpu",
        "--deployment",
        "Slow",
        "--device",
        "7",
        LORRY_FAKE_STEP_MS="250",
    )
    jobs = cluster.load.submit(12, models=["Slow"])
    settled(cluster)
    assert count(cluster, _CLAIMED_TWICE, ids=jobs) == 0
    worker.terminate()
    assert worker.exit_code() == 0


def test_row_11_every_message_five_times_in_any_order(cluster: Cluster) -> None:
    second = cluster.victim("8")
    jobs = cluster.load.submit(120)
    eventually(lambda: count(cluster, _CLAIMED, ids=jobs) > 0)
    copies = [ids.to_wire("job", job) for job in jobs] * 5
    random.Random(11).shuffle(copies)
    queues.send_jobs(cluster.celery, "Tiny", copies)
    settled(cluster)
    assert count(cluster, _CLAIMED_TWICE, ids=jobs) == 0
    second.terminate()
    assert second.exit_code() == 0


@pytest.mark.parametrize("end", ["killed_and_empty", "flushed"])
def test_row_12_a_broker_that_forgets(cluster: Cluster, end: str) -> None:
    jobs = cluster.load.submit(300)
    eventually(lambda: count(cluster, _CLAIMED, ids=jobs) > 0)
    if end == "flushed":
        cluster.redis.flushall()
    else:
        cluster.valkey.kill()
        cluster.valkey.forget()
        jobs += cluster.load.submit(50)  # submissions never need the broker
        cluster.valkey.start()
    resumes(cluster, jobs)


def test_row_13_a_broker_without_memory(standing: Standing) -> None:
    """Celery's consumer may end by an answer that it never expects; then the worker asks to be started anew."""
    cluster = standing.cluster
    with cluster.redis as client:
        client.config_set("maxmemory", "1")
        jobs = cluster.load.submit(200)
        time.sleep(2)  # the time in which sends are refused is the fault itself
        client.config_set("maxmemory", "0")
    assert standing.supervise() in (None, START_ANEW)
    resumes(cluster, jobs)


def test_row_14_a_broker_that_hangs(cluster: Cluster) -> None:
    jobs = cluster.load.submit(300)
    eventually(lambda: count(cluster, _CLAIMED, ids=jobs) > 0)
    cluster.valkey.freeze()
    jobs += cluster.load.submit(50)
    time.sleep(4)  # the hang is the fault itself
    cluster.valkey.thaw()
    resumes(cluster, jobs)
