"""A client that repeats a request by itself, without a key, has its effect once as well."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
from sqlalchemy import text
from starlette.testclient import TestClient

from tests.api.test_idempotency import JOB, rows
from tests.e2e.crew import eventually
from tests.world import World


def test_two_equal_first_requests_without_a_key_are_two(acme: TestClient, world: World) -> None:
    for _ in range(2):
        acme.post("/v1/jobs", json=JOB, headers={"x-stainless-retry-count": "0"})
    newest = acme.get("/v1/jobs").json()["data"][0]["id"]
    retried = acme.post("/v1/jobs", json=JOB, headers={"x-stainless-retry-count": "1"})
    assert retried.json()["id"] == newest
    assert rows(world)["jobs"] == 2


def test_a_retry_after_two_minutes_or_of_nothing_is_a_first_request(acme: TestClient, world: World) -> None:
    alone = acme.post("/v1/jobs", json=JOB, headers={"x-stainless-retry-count": "2"})
    assert alone.status_code == 202
    with world.db.transaction() as session:
        kept_s = session.scalars(
            text("SELECT extract(epoch FROM expires_at - created_at)::int FROM kept_answers")
        ).one()
        session.execute(text("UPDATE kept_answers SET expires_at = now()"))
    assert kept_s == 120
    late = acme.post("/v1/jobs", json=JOB, headers={"x-stainless-retry-count": "1"})
    assert late.json()["id"] != alone.json()["id"]


def test_a_retry_that_overtakes_its_first_request_gets_that_ones_answer(
    acme: TestClient, world: World, superuser: psycopg.Connection[tuple[object, ...]]
) -> None:
    """The first holds its answer uncommitted; the retry has to wait for it and then undo its own work."""
    first = acme.post("/v1/jobs", json=JOB, headers={"x-stainless-retry-count": "0"})
    with world.db.transaction() as session:
        session.execute(text("UPDATE kept_answers SET expires_at = now()"))
    with ThreadPoolExecutor(1) as pool:
        with world.db.transaction() as session:
            session.execute(text("UPDATE kept_answers SET expires_at = now() + interval '1 minute'"))
            retry = pool.submit(acme.post, "/v1/jobs", json=JOB, headers={"x-stainless-retry-count": "1"})
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%kept_answers%'"
            )
            assert eventually(lambda: superuser.execute(waiting).fetchone() == (1,), within_s=4)
            assert not retry.done()
        answer = retry.result(10)
    assert answer.json()["id"] == first.json()["id"]
    assert rows(world)["jobs"] == 1
