"""Jobs as their tenant submits and reads them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from sqlalchemy import text

from registry import adapters, jobs, transitions
from registry.db import Database
from registry.errors import NotFound
from registry.shapes import JobCreate, job_view
from registry.states import State
from tests.world import World

DOCUMENT = '고객 문의: 주문 48213 🙏🏽\n\tTabs, "quotes", \\backslashes, \u2028 and <b>.'


def test_a_submitted_job_reads_back_byte_for_byte(system_db: Database, api_db: Database, world: World) -> None:
    world.adapter("acme", "tickets")
    request = JobCreate(model="tickets", document=DOCUMENT, custom_id="줄-1", metadata={"부서": "지원 😀"})
    with api_db.transaction("acme") as session:
        job_id = jobs.submit(session, "acme", request, adapters.resolve(session, "acme", "tickets"), 64)
    with system_db.transaction() as session:
        body = session.scalar(text("SELECT body FROM job_inputs"))
    assert body["document"] == DOCUMENT
    assert body["sampling"]["max_tokens"] == 64
    with api_db.transaction("acme") as session:
        view = job_view(jobs.get(session, "acme", job_id))
    assert (view.status, view.model, view.adapter_version) == ("queued", "tickets", 1)
    assert (view.custom_id, view.metadata) == ("줄-1", {"부서": "지원 😀"})
    assert (view.output, view.usage, view.error, view.timing, view.started_at) == (None, None, None, None, None)


def test_creation_time_and_day_are_the_database_clocks(system_db: Database, world: World) -> None:
    """Queue times are differences of the database's clock: an API host's own would skew them."""
    world.tenant()
    world.base()
    with system_db.transaction() as session:
        resolved = adapters.resolve(session, "acme", "Tiny")
        job_id = jobs.submit(session, "acme", JobCreate(model="Tiny", prompt="x"), resolved, 8)
        now = session.scalar(text("SELECT now()"))
        day = session.scalar(text("SELECT day FROM job_inputs"))
    assert world.row(job_id)["created_at"] == now
    assert day == now.astimezone(UTC).date()


def test_a_job_exists_only_once_its_transaction_commits(api_db: Database, world: World) -> None:
    world.tenant()
    world.base()
    with api_db.transaction("acme") as session:
        resolved = adapters.resolve(session, "acme", "Tiny")
        job_id = jobs.submit(session, "acme", JobCreate(model="Tiny", prompt="x"), resolved, 8)
        session.rollback()
    with api_db.transaction("acme") as session, pytest.raises(NotFound):
        jobs.get(session, "acme", job_id)


def test_a_finished_job_shows_output_usage_and_timing(system_db: Database, world: World) -> None:
    job_id = world.job()
    [claimed] = world.claim(world.worker(), world.pick())
    timing = {
        "queued_ms": claimed.queued_ms,
        "held_ms": 1.0,
        "swap": None,
        "prefill_ms": 2.0,
        "decode_ms": 3.0,
        "running_batch": {"jobs": 4, "adapters": 2},
    }
    outcome = transitions.Outcome(
        *(job_id, 1, "succeeded"), text="요약 😀", finish_reason="stop", prompt_tokens=3, output_tokens=2, timing=timing
    )
    with system_db.transaction() as session:
        transitions.start(session, [(job_id, 1)])
        assert job_view(jobs.get(session, "acme", job_id)).status == "running"
        transitions.settle(session, [outcome])
        view = job_view(jobs.get(session, "acme", job_id))
    assert view.status == "succeeded"
    assert view.output is not None
    assert (view.output.text, view.output.finish_reason) == ("요약 😀", "stop")
    assert view.usage is not None
    assert view.usage.total_tokens == 5
    assert view.timing is not None
    assert view.timing.running_batch.adapters == 2
    assert view.timing.total_ms >= view.timing.queued_ms


def test_claimed_but_not_started_still_reads_queued(system_db: Database, world: World) -> None:
    job_id = world.job()
    world.claim(world.worker(), world.pick())
    with system_db.transaction() as session:
        assert job_view(jobs.get(session, "acme", job_id)).status == "queued"


def test_foreign_and_missing_jobs_get_the_same_answer(system_db: Database, api_db: Database, world: World) -> None:
    world.tenant("globex")
    theirs = world.job("acme")
    for db in (system_db, api_db):
        for job_id in (theirs, uuid.uuid4()):
            with db.transaction("globex") as session:
                with pytest.raises(NotFound, match="No such job: check the id"):
                    jobs.get(session, "globex", job_id)
                with pytest.raises(NotFound, match="check `after`"):
                    jobs.page(session, "globex", after=job_id, limit=5, status=None)


def test_pages_follow_each_other_newest_first_without_gaps(api_db: Database, world: World) -> None:
    made = [world.job("acme") for _ in range(7)]
    world.job("globex")
    seen: list[uuid.UUID] = []
    after = None
    with api_db.transaction("acme") as session:
        while True:
            rows = jobs.page(session, "acme", after=after, limit=3, status=None)
            seen += [row.id for row in rows[:3]]
            if len(rows) <= 3:
                break
            after = rows[2].id
    assert seen == made[::-1]


def test_a_page_is_stable_while_new_jobs_arrive(api_db: Database, world: World) -> None:
    made = [world.job("acme") for _ in range(4)]
    with api_db.transaction("acme") as session:
        first = jobs.page(session, "acme", after=None, limit=2, status=None)
    world.job("acme")
    with api_db.transaction("acme") as session:
        second = jobs.page(session, "acme", after=first[1].id, limit=2, status=None)
    assert [row.id for row in second] == [made[1], made[0]]


def test_status_filters_by_the_tenants_words(api_db: Database, world: World, system_db: Database) -> None:
    rows = {state: world.job_in(state) for state in State}
    held = world.job_in(State.RUNNING)
    with system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET started_at = NULL WHERE id = :id"), {"id": held})
    expected = {
        "queued": {rows[State.QUEUED], rows[State.DISPATCHED], held},
        "running": {rows[State.RUNNING]},
        **{state.value: {rows[state]} for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.EXPIRED)},
    }
    for status, ids in expected.items():
        with api_db.transaction("acme") as session:
            found = jobs.page(session, "acme", after=None, limit=50, status=status)
        assert {row.id for row in found} == ids
        assert {job_view(row).status for row in found} == {status}


def test_a_job_without_its_purged_texts_still_reads(system_db: Database, world: World) -> None:
    job_id = world.job_in(State.SUCCEEDED)
    with system_db.transaction() as session:
        view = job_view(jobs.get(session, "acme", job_id))
    assert (view.status, view.output, view.metadata) == ("succeeded", None, {})
    assert abs(view.created_at - datetime.now(UTC).timestamp()) < 60
