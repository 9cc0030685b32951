"""Running again what did not succeed: a linked batch with the same lines, texts copied inside the database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text, update

from registry.batches import purge, rerun
from registry.db import Database
from registry.errors import AdapterUnavailable, NotEnded, NotFound, NothingToRerun
from registry.models import Adapter, Batch
from tests.registry.batches.batch_rig import Batches

LINES = text("""
SELECT j.line_no, j.custom_id, j.state, j.adapter_id, j.deadline, i.body FROM jobs j
JOIN job_inputs i ON i.job_id = j.id WHERE j.batch_id = :batch ORDER BY j.seq
""")


def retire(batches: Batches, adapter: Adapter) -> None:
    with batches.db.transaction() as session:
        session.execute(
            update(Adapter)
            .where(Adapter.adapter_id == adapter.adapter_id)
            .values(state="retired", state_reason="x", is_active=False)
        )


def test_failed_expired_and_cancelled_lines_run_again_under_their_numbers(batches: Batches, api_db: Database) -> None:
    old_id = batches.make(5, bad=[5], on_bad_line="skip", metadata_={"team": "ops"}, webhook_url="https://x.example/h")
    batches.run(old_id, succeed=[1], fail=[2])
    with batches.db.transaction() as session:
        session.execute(text("UPDATE jobs SET deadline = now() WHERE batch_id = :id AND line_no = 3"), {"id": old_id})
    batches.window_passes(old_id)
    batches.dispatch()
    with api_db.transaction("acme") as session:
        new_id = rerun.rerun(session, "acme", old_id)
    view = batches.view(new_id)
    assert (view.status, view.request_counts.total, view.metadata) == ("in_progress", 3, {"team": "ops"})
    assert view.lorry.rerun_of == f"batch_{old_id.hex}"
    with batches.db.transaction() as session:
        rows = session.execute(LINES, {"batch": new_id}).all()
        new = session.get_one(Batch, new_id)
    assert [(row.line_no, row.custom_id, row.state) for row in rows] == [
        (line, f"line-{line}", "queued") for line in (2, 3, 4)
    ]
    assert [row.body["document"] for row in rows] == ["Document 2", "Document 3", "Document 4"]
    assert {row.deadline for row in rows} == {new.expires_at}
    assert new.expires_at == new.created_at + timedelta(hours=24)
    assert new.webhook_url == "https://x.example/h"
    batches.run(new_id, succeed=[2, 3, 4])
    assert batches.dispatch() == ["completed"]


def test_lines_of_a_cancelled_batch_run_again(batches: Batches) -> None:
    old_id = batches.make(2)
    batches.cancel(old_id)
    batches.dispatch()
    with batches.db.transaction() as session:
        new_id = rerun.rerun(session, "acme", old_id)
    assert batches.view(new_id).request_counts.total == 2


def test_a_line_keeps_its_pinned_version_while_that_one_is_ready(batches: Batches) -> None:
    pinned = batches.world.adapter()
    old_id = batches.make(1, adapter=pinned)
    batches.run(old_id, fail=[1])
    batches.dispatch()
    batches.world.adapter()
    with batches.db.transaction() as session:
        session.execute(text("UPDATE tenant_adapters SET is_active = false"))
        session.execute(text("UPDATE tenant_adapters SET is_active = true WHERE version = 2"))
    with batches.db.transaction() as session:
        new_id = rerun.rerun(session, "acme", old_id)
        assert [row.adapter_id for row in session.execute(LINES, {"batch": new_id})] == [pinned.adapter_id]


def test_a_line_whose_version_is_gone_runs_with_what_its_name_means_now(batches: Batches) -> None:
    gone = batches.world.adapter()
    old_id = batches.make(2, adapter=gone)
    batches.run(old_id, fail=[1, 2])
    batches.dispatch()
    retire(batches, gone)
    with pytest.raises(Exception, match="does not exist"), batches.db.transaction() as session:
        rerun.rerun(session, "acme", old_id)
    following = batches.world.adapter()
    with batches.db.transaction() as session:
        session.execute(text("UPDATE tenant_adapters SET is_active = (version = 2)"))
    with batches.db.transaction() as session:
        new_id = rerun.rerun(session, "acme", old_id)
        assert [row.adapter_id for row in session.execute(LINES, {"batch": new_id})] == [following.adapter_id] * 2


def test_a_line_that_named_a_version_which_is_gone_is_refused(batches: Batches) -> None:
    gone = batches.world.adapter()
    old_id = batches.make(1, adapter=gone)
    batches.run(old_id, fail=[1])
    batches.dispatch()
    with batches.db.transaction() as session:
        session.execute(text("UPDATE jobs SET model = 'tickets@1'"))
    retire(batches, gone)
    with pytest.raises(AdapterUnavailable), batches.db.transaction() as session:
        rerun.rerun(session, "acme", old_id)
    with batches.db.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM batches")) == 1


def test_what_cannot_run_again_is_refused_by_name(batches: Batches) -> None:
    running, done, purged = batches.make(1), batches.make(1), batches.make(1)
    batches.run(done, succeed=[1])
    batches.run(purged, fail=[1])
    batches.dispatch()
    with batches.db.transaction() as session:
        purge.purge_job(session, "acme", batches.jobs(purged)[1])
    for batch_id, tenant, error in (
        (running, "acme", NotEnded),
        (done, "acme", NothingToRerun),
        (purged, "acme", NothingToRerun),
        (done, "globex", NotFound),
    ):
        with pytest.raises(error), batches.db.transaction() as session:
            rerun.rerun(session, tenant, batch_id)
