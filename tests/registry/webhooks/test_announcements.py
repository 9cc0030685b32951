"""The triggers: what ends is announced in the transaction that ends it, to whoever wanted to hear, nobody else."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import text

from registry import transitions
from registry.db import API_ROLE, Database
from registry.webhooks import endpoints
from tests.hooks import BATCH_EVENTS, Hooks


def announced(hooks: Hooks) -> list[tuple[str, uuid.UUID | None, str]]:
    return [(row.type, row.subject, row.state) for row in hooks.deliveries()]


def test_a_jobs_end_makes_one_delivery_for_each_endpoint_that_wants_it(hooks: Hooks) -> None:
    first, _ = hooks.endpoint()
    second, _ = hooks.endpoint(events=("job.succeeded",))
    hooks.endpoint(events=("job.cancelled", "batch.completed"))
    job = hooks.finished_job()
    assert announced(hooks) == [("job.succeeded", job, "pending")] * 2
    assert {row.endpoint_id for row in hooks.deliveries()} == {first, second}


def test_a_cancelled_job_is_announced_by_whoever_cancels_it(hooks: Hooks, api_db: Database) -> None:
    """The API's role may write its own tenant's delivery, through the trigger."""
    hooks.endpoint()
    job = hooks.world.job("acme")
    with api_db.transaction("acme") as session:
        assert session.scalar(text("SELECT current_user")) == API_ROLE
        assert transitions.cancel(session, "acme", job)
    assert announced(hooks) == [("job.cancelled", job, "pending")]


def test_an_end_that_is_rolled_back_is_not_announced(hooks: Hooks) -> None:
    hooks.endpoint()
    job = hooks.world.job("acme")
    with hooks.db.transaction() as session:
        assert transitions.cancel(session, "acme", job)
        session.rollback()
    assert announced(hooks) == []


def test_nobody_elses_jobs_are_announced(hooks: Hooks) -> None:
    hooks.endpoint(tenant="globex")
    hooks.cancelled_job("acme")
    assert announced(hooks) == []


def test_jobs_without_a_listener_carry_no_mark(hooks: Hooks) -> None:
    hooks.endpoint(events=("batch.completed",))
    assert hooks.world.row(hooks.world.job("acme"))["notify"] is False
    hooks.endpoint(events=("job.failed",))
    assert hooks.world.row(hooks.world.job("acme"))["notify"] is True


def test_a_jobs_own_url_is_told_of_that_job_only(hooks: Hooks) -> None:
    inline, _ = hooks.inline()
    hooks.cancelled_job()
    job = hooks.cancelled_job(webhook_url="https://other.example:8443/cb?job=7")
    (row,) = hooks.deliveries()
    assert (row.endpoint_id, row.subject, row.url) == (inline, job, "https://other.example:8443/cb?job=7")
    assert row.lane == "acme https://other.example:8443"


@pytest.mark.parametrize("status", ["completed", "cancelled"])
def test_a_batchs_end_is_announced_once_and_its_lines_are_not(hooks: Hooks, status: str) -> None:
    hooks.endpoint(events=(*BATCH_EVENTS, "job.succeeded"))
    batch, jobs = hooks.batch(2)
    hooks.run(jobs)
    hooks.end_batch(batch, status)
    assert announced(hooks) == [(f"batch.{status}", batch, "pending")]


def test_a_batch_that_begins_is_announced_to_who_asked(hooks: Hooks) -> None:
    hooks.endpoint(events=("batch.in_progress",))
    batch, _ = hooks.batch(1)
    assert announced(hooks) == [("batch.in_progress", batch, "pending")]


def test_a_batchs_own_url_is_told_of_its_end(hooks: Hooks) -> None:
    hooks.inline()
    batch, _ = hooks.batch(1, webhook_url="https://other.example/b")
    hooks.end_batch(batch)
    assert [(row.type, row.url) for row in hooks.deliveries()] == [("batch.completed", "https://other.example/b")]


def test_the_ingest_role_announces_and_sees_no_secret(hooks: Hooks) -> None:
    hooks.endpoint(events=("batch.failed",), deliver="results")
    hooks.world.tenant("acme")
    with hooks.db.transaction() as session:
        session.execute(text("RESET ROLE; SET LOCAL ROLE lorry_ingest"))
        session.execute(
            text("""INSERT INTO batches (id, tenant_id, source, endpoint, status, completion_window, failed_at)
                    VALUES (uuidv7(), 'acme', 'file', '/v1/jobs', 'failed', '24h', now())""")
        )
        readable = session.scalar(
            text("SELECT has_column_privilege('lorry_ingest', 'webhook_endpoints', 'secret', 'SELECT')")
        )
    assert [row.type for row in hooks.deliveries()] == ["batch.failed"]
    assert readable is False


def test_what_happens_while_an_endpoint_is_disabled_is_kept_as_a_dead_letter(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    waiting = hooks.cancelled_job()
    with hooks.db.transaction() as session:
        endpoints.disable(session, "acme", endpoint, "by_tenant")
    meanwhile = hooks.cancelled_job()
    assert announced(hooks) == [("job.cancelled", waiting, "exhausted"), ("job.cancelled", meanwhile, "exhausted")]
