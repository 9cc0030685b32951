"""A batch as its tenant reads it: OpenAI's object, counts that add up at every moment, a measured rate."""

from __future__ import annotations

import uuid

import pytest
from openai.types import Batch as OpenAIBatch
from sqlalchemy import text

from registry import transitions
from registry.batches import views
from registry.errors import NotFound
from tests.registry.batches.batch_rig import Batches


def test_openais_client_reads_it(batches: Batches) -> None:
    batch_id = batches.make(2, metadata_={"team": "ops"}, input_file_id=uuid.uuid4(), model="Tiny")
    batches.run(batch_id, succeed=[1])
    batches.dispatch()
    batch = OpenAIBatch.model_validate(batches.view(batch_id).model_dump())
    assert (batch.id, batch.object, batch.status, batch.completion_window) == (
        f"batch_{batch_id.hex}",
        "batch",
        "in_progress",
        "24h",
    )
    assert batch.request_counts is not None
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (2, 1, 0)
    assert batch.usage is not None
    assert batch.usage.total_tokens == 16
    assert batch.metadata == {"team": "ops"}
    assert batch.input_file_id.startswith("file-")
    assert batch.expires_at == batch.created_at + 24 * 3600


def test_a_failed_batch_lists_its_errors(batches: Batches) -> None:
    batches.world.tenant()
    batch_id = uuid.uuid4()
    put = text("""
        INSERT INTO batches (id, tenant_id, source, endpoint, completion_window, status, failed_at, errors, error_total)
        VALUES (:id, 'acme', 'file', 'x', '24h', 'failed', now(),
                '[{"code": "empty_file", "line": null, "message": "There is no line.", "param": null}]', 1)""")
    with batches.db.transaction() as session:
        session.execute(put, {"id": batch_id})
    view = batches.view(batch_id)
    assert view.errors is not None
    assert [(error.code, error.line) for error in view.errors.data] == [("empty_file", None)]
    assert view.lorry.bad_lines == 1


def test_lines_are_counted_by_status(batches: Batches) -> None:
    batch_id = batches.make(5)
    batches.run(batch_id, succeed=[1], fail=[2])
    batches.dispatch()
    claimed = batches.world.claim(batches.world.worker(), batches.world.pick(2))
    with batches.db.transaction() as session:
        transitions.start(session, [(claimed[0].job_id, claimed[0].fence)])
    counts = batches.view(batch_id).lorry.counts
    assert counts.model_dump() == {
        "queued": 2, "running": 1, "succeeded": 1, "failed": 1, "cancelled": 0, "expired": 0
    }  # fmt: skip


def test_the_rate_is_measured_and_gives_the_time_left(batches: Batches) -> None:
    batch_id = batches.make(30)
    assert (batches.view(batch_id).lorry.rate_jobs_s, batches.view(batch_id).lorry.eta_s) == (0, None)
    batches.run(batch_id, succeed=range(1, 21))
    # Twenty lines, the first of them ten seconds ago.
    with batches.db.transaction() as session:
        session.execute(text("UPDATE tallies SET at = clock_timestamp() - interval '10 s'"))
    batches.dispatch()
    extras = batches.view(batch_id).lorry
    assert 1.5 < extras.rate_jobs_s < 3.0
    assert extras.eta_s is not None
    assert abs(extras.eta_s - 10 / extras.rate_jobs_s) < 0.2
    with batches.db.transaction() as session:
        session.execute(
            text("UPDATE batches SET pace_at = pace_at - interval '30 s', pace_since = pace_since - interval '30 s'")
        )
    assert batches.view(batch_id).lorry.rate_jobs_s < 0.5 * extras.rate_jobs_s


def test_cancelled_and_expired_lines_are_no_pace(batches: Batches) -> None:
    batch_id = batches.make(4)
    with batches.db.transaction() as session:
        transitions.cancel(session, "acme", batches.jobs(batch_id)[1])
    batches.dispatch()
    assert batches.view(batch_id).lorry.rate_jobs_s == 0


def test_pages_go_from_the_newest_to_the_oldest(batches: Batches) -> None:
    made = [batches.make(1) for _ in range(3)]
    batches.make(1, "globex")
    with batches.db.transaction() as session:
        first = views.page(session, "acme", after=None, limit=2)
        assert [view.id for view in first] == [f"batch_{batch_id.hex}" for batch_id in reversed(made)]
        rest = views.page(session, "acme", after=made[1], limit=2)
        assert [view.id for view in rest] == [f"batch_{made[0].hex}"]
        with pytest.raises(NotFound):
            views.page(session, "globex", after=made[1], limit=2)
        with pytest.raises(NotFound):
            views.get(session, "globex", made[0])
