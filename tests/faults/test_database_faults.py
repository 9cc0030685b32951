"""PostgreSQL away, restarted, without disk, or dropping everybody; clocks and migrations: rows 15, 16, 40 and 60."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from urllib.error import URLError

import pytest
from sqlalchemy import text

from registry import ids, queues
from tests.e2e.crew import eventually
from tests.faults.calls import Answered, call
from tests.faults.checker import count, settled
from tests.faults.cluster import Cluster, took
from tests.faults.load import CANARY
from tests.faults.wal_disk import WalDisk

RESUME_S = 30.0
_DONE = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND finished_at IS NOT NULL")
_DEAD = text("SELECT count(*) FROM workers WHERE state = 'dead'")


def more_done(cluster: Cluster, jobs: Sequence[uuid.UUID], before: int) -> bool:
    return count(cluster, _DONE, ids=jobs) > before


def test_row_15_postgres_restarts_under_load_and_the_api_says_so(cluster: Cluster) -> None:
    url, key = cluster.api(), cluster.world.key("acme")
    jobs = cluster.load.submit(300)
    eventually(lambda: count(cluster, _DONE, ids=jobs) > 0)
    cluster.postgres.stop_immediately()
    job = {"model": "tickets", "document": CANARY, "custom_id": CANARY}
    once = {"idempotency-key": "row-15"}
    away = call(f"{url}/v1/jobs", key, job, headers=once)
    assert (away.status, away.headers["content-type"]) == (503, "application/problem+json")
    assert int(away.headers["retry-after"]) > 0
    assert call(f"{url}/v1/jobs", key, job, headers=once).took_s < 1
    cluster.postgres.start()
    assert took(lambda: call(f"{url}/v1/jobs", key, job, headers=once).status == 202, within_s=RESUME_S) < RESUME_S
    again = call(f"{url}/v1/jobs", key, job, headers=once)
    assert again.status == 202
    cluster.load.expect([ids.from_wire("job", again.json["id"])])
    settled(cluster)


def test_row_15_a_postgres_that_hangs_counts_as_away_and_nobody_is_rescued_from(cluster: Cluster) -> None:
    url, key, dead = cluster.api(), cluster.world.key("acme"), count(cluster, _DEAD)
    jobs = cluster.load.submit(300)
    eventually(lambda: count(cluster, _DONE, ids=jobs) > 0)
    job, once = {"model": "tickets", "document": CANARY, "custom_id": CANARY}, {"idempotency-key": "row-15-hangs"}
    cluster.postgres.freeze()
    try:
        eventually(lambda: refuses(f"{url}/readyz"))
        until_s = time.monotonic() + 2 * cluster.settings.lease_s
        while time.monotonic() < until_s:
            away = call(f"{url}/v1/jobs", key, job, headers=once)
            assert (away.status, away.json["error"]["code"]) == (503, "unavailable")
            assert away.took_s < 1
    finally:
        cluster.postgres.thaw()
    eventually(lambda: call(f"{url}/v1/jobs", key, job, headers=once).status == 202)
    again = call(f"{url}/v1/jobs", key, job, headers=once)
    cluster.load.expect([ids.from_wire("job", again.json["id"])])
    settled(cluster)
    assert count(cluster, _DEAD) == dead


def refuses(url: str) -> bool:
    """Whether it says 503; one that says nothing yet does not."""
    with suppress(TimeoutError, URLError):
        return call(url, "", timeout_s=0.5).status == 503
    return False


def test_row_15_every_connection_dropped_again_and_again(cluster: Cluster) -> None:
    jobs = cluster.load.submit(300)
    with cluster.superuser() as connection:
        for _ in range(5):
            done = count(cluster, _DONE, ids=jobs)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            eventually(partial(more_done, cluster, jobs, done), within_s=RESUME_S)
    settled(cluster)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_row_16_a_full_disk_under_the_write_ahead_log_loses_nothing_that_was_acknowledged(cluster: Cluster) -> None:
    url, key = cluster.api(), cluster.world.key("acme")
    job = {"model": "tickets", "document": CANARY, "custom_id": CANARY}
    once = {"idempotency-key": "row-16"}
    with WalDisk(cluster) as disk:
        jobs = cluster.load.submit(300)
        eventually(lambda: count(cluster, _DONE, ids=jobs) > 0)
        disk.fill()

        def refused() -> Answered | None:
            disk.use_up()
            answer = call(f"{url}/v1/jobs", key, job, headers=once)
            return None if answer.status == 202 else answer  # PostgreSQL was back for a moment

        away = eventually(refused)
        assert b"No space left on device" in cluster.postgres.log.read_bytes()
        assert (away.status, away.json["error"]["code"]) == (503, "unavailable")
        assert int(away.headers["retry-after"]) > 0
        disk.free()
        cluster.postgres.start()  # as its supervisor does
        eventually(lambda: call(f"{url}/v1/jobs", key, job, headers=once).status == 202)
        again = call(f"{url}/v1/jobs", key, job, headers=once)
        cluster.load.expect([ids.from_wire("job", again.json["id"])])
        settled(cluster)


def test_row_40_clocks_an_hour_wrong_rescue_nobody(cluster: Cluster) -> None:
    before = count(cluster, _DEAD)
    wrong = [cluster.altered("clock_ahead", "9"), cluster.altered("clock_behind", "10")]
    for member in wrong:
        eventually(partial(cluster.crew.is_ready, member))
    jobs = cluster.load.submit(200)
    settled(cluster)
    with cluster.db.transaction() as session:
        workers = session.scalar(text("SELECT count(DISTINCT worker) FROM jobs WHERE id = ANY(:ids)"), {"ids": jobs})
    assert workers == 3, "all three were to take part"
    assert count(cluster, _DEAD) == before
    for member in wrong:
        member.terminate()
        assert member.exit_code() == 0


def test_row_60_migrations_run_again_under_load_and_foreign_messages_harm_nobody(cluster: Cluster) -> None:
    jobs = cluster.load.submit(200)
    gone = ids.to_wire("job", ids.new_id())
    with cluster.celery.producer_or_acquire() as producer:
        for task, arguments in (
            ("lorry.run_job", (gone,)),
            ("lorry.run_job", (gone, {"version": 2})),
            ("lorry.run_job", ("not an id",)),
            ("lorry.task_of_a_later_release", (gone,)),
        ):
            cluster.celery.send_task(task, args=arguments, queue=queues.queue("infer.Tiny"), producer=producer)
    migration = cluster.crew.start("registry.migrations")
    assert migration.exit_code() == 0
    settled(cluster)
    assert count(cluster, _DONE, ids=jobs) == len(jobs)
    left = [json.loads(message)["headers"]["task"] for message in cluster.redis.lrange("infer.Tiny", 0, -1)]
    assert left == []
