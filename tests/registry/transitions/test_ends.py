"""Ends that no worker brings: cancel, expiry, an adapter that is gone."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from sqlalchemy import text

from registry import transitions, wake
from registry.db import Database
from registry.states import State
from tests.registry.batches.batch_rig import Batches
from tests.world import World


def test_cancel_says_whether_it_stopped_the_job(system_db: Database, world: World) -> None:
    job_id = world.job()
    with system_db.transaction() as session:
        assert transitions.cancel(session, "acme", job_id) is True
        assert transitions.cancel(session, "acme", job_id) is False
        assert transitions.cancel(session, "acme", uuid.uuid4()) is False
    assert world.row(job_id)["finished_at"] is not None


def test_another_tenants_job_cannot_be_cancelled(system_db: Database, api_db: Database, world: World) -> None:
    world.tenant("globex")
    job_id = world.job("acme")
    with system_db.transaction() as session:
        assert transitions.cancel(session, "globex", job_id) is False
    with api_db.transaction("globex") as session:
        assert transitions.cancel(session, "acme", job_id) is False
    assert world.state(job_id) == "queued"


def test_the_api_may_cancel_its_callers_job(api_db: Database, world: World) -> None:
    job_id = world.job("acme")
    with api_db.transaction("acme") as session:
        assert transitions.cancel(session, "acme", job_id) is True
    assert world.state(job_id) == "cancelled"


def test_only_jobs_past_their_deadline_expire(system_db: Database, world: World) -> None:
    late, early, never = world.job(), world.job(), world.job()
    now = datetime.now(UTC)
    with system_db.transaction() as session:
        for job_id, deadline in ((late, now - timedelta(seconds=1)), (early, now + timedelta(hours=1))):
            session.execute(text("UPDATE jobs SET deadline = :at WHERE id = :id"), {"at": deadline, "id": job_id})
    with system_db.transaction() as session:
        assert transitions.expire(session) == {late}
    assert [world.state(job_id) for job_id in (late, early, never)] == ["expired", "queued", "queued"]


def test_a_thousand_expire_at_a_time(system_db: Database, world: World) -> None:
    world.tenant()
    world.base()
    with system_db.transaction() as session:
        session.execute(
            text("""INSERT INTO jobs (id, tenant_id, deployment, model, deadline)
                    SELECT uuidv7(), 'acme', 'Tiny', 'Tiny', now() - interval '1 s' FROM generate_series(1, 1200)""")
        )
    counts = []
    for _ in range(3):
        with system_db.transaction() as session:
            counts.append(len(transitions.expire(session)))
    assert counts == [1000, 200, 0]


def test_a_gone_adapter_fails_its_own_open_jobs_only(system_db: Database, world: World) -> None:
    gone, other = world.adapter("acme", "a"), world.adapter("acme", "b")
    failed = {world.job_in(state, adapter=gone) for state in (State.QUEUED, State.DISPATCHED, State.RUNNING)}
    kept = [world.job_in(State.QUEUED, adapter=other), world.job_in(State.QUEUED)]
    with system_db.transaction() as session:
        assert transitions.fail_unavailable(session, "acme", gone.adapter_id) == failed
    assert {world.row(job_id)["error_code"] for job_id in failed} == {"adapter_unavailable"}
    assert [world.state(job_id) for job_id in kept] == ["queued", "queued"]


def test_the_open_lines_of_a_cancelled_batch_end_and_are_counted(system_db: Database, world: World) -> None:
    batches = Batches(world)
    batch_id, other = batches.make(3), batches.make(1)
    batches.cancel(batch_id)
    for expected in (3, 0):
        with system_db.transaction() as session:
            assert transitions.cancel_lines(session) == expected
    with system_db.transaction() as session:
        counted = session.execute(text("SELECT batch_id, cancelled FROM tallies")).all()
    assert [tuple(row) for row in counted] == [(batch_id, 3)]
    assert world.state(batches.jobs(other)[1]) == "queued"


def test_workers_hear_of_running_jobs_that_the_dispatcher_ends(
    system_db: Database, world: World, database_url: str
) -> None:
    batches = Batches(world)
    with wake.listen(database_url, wake.CANCELLED) as listener:
        for end, heard in ((transitions.cancel_lines, True), (transitions.expire, True), (transitions.expire, False)):
            batch_id = batches.make(1)
            if heard:
                world.claim(world.worker(), world.pick())
            batches.cancel(batch_id)
            with system_db.transaction() as session:
                session.execute(text("UPDATE jobs SET deadline = now() WHERE finished_at IS NULL"))
            with system_db.transaction() as session:
                end(session)
            notices = list(listener.notifies(timeout=0.5, stop_after=1))
            assert bool(notices) == heard
