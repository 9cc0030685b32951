"""Batches through dispatcher, queue, worker and back: to the end, cancelled half-way, past their window."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from registry import wake
from registry.batches import ends
from registry.db import Database
from registry.wake import Waker
from tests.e2e.crew import Crew, eventually
from tests.registry.batches.batch_rig import Batches
from tests.world import World


@pytest.fixture
def batches(world: World) -> Batches:
    return Batches(world)


def test_a_batch_is_completed_by_the_dispatcher_and_every_line_is_in_its_file(crew: Crew, batches: Batches) -> None:
    batch_id = batches.make(50, adapter=batches.world.adapter())
    crew.dispatcher()
    crew.worker()
    eventually(lambda: batches.view(batch_id).status == "completed", within_s=60)
    view = batches.view(batch_id)
    assert (view.request_counts.completed, view.request_counts.failed) == (50, 0)
    assert [line["custom_id"] for line in batches.output(batch_id)] == [f"line-{line}" for line in range(1, 51)]


def test_a_cancel_frees_the_engine_at_once_for_the_next_job(crew: Crew, batches: Batches, api_db: Database) -> None:
    """The whole way: one UPDATE by the API, the dispatcher ends the lines, the worker hears of it and aborts. Its beat
    is slow here: were it not for the notice, the engine would be free after seconds only."""
    batch_id = batches.make(60)
    with crew.db.transaction() as session:
        session.execute(text("UPDATE job_inputs SET body = jsonb_set(body, '{sampling,max_tokens}', '400')"))
    crew.dispatcher()
    crew.worker(LORRY_FAKE_STEP_MS="500", LORRY_BEAT_S="10", LORRY_LEASE_S="60")
    eventually(lambda: batches.view(batch_id).lorry.counts.running == 8, within_s=30)  # every place in the engine
    waker = Waker(api_db)
    with api_db.transaction("acme") as session:
        assert ends.request_cancel(session, "acme", batch_id) is True
    waker.wake(wake.QUEUED)
    job_id = batches.world.job(max_tokens=1)
    eventually(lambda: batches.world.row(job_id)["started_at"] is not None, within_s=10)
    eventually(lambda: batches.view(batch_id).status == "cancelled", within_s=10)
    with crew.db.transaction() as session:
        asked_at = session.scalar(text("SELECT cancelling_at FROM batches"))
        late = text("SELECT count(*) FROM jobs WHERE batch_id IS NOT NULL AND started_at > :at + interval '5 s'")
        assert session.scalar(late, {"at": asked_at}) == 0
    to_free_s = (batches.world.row(job_id)["started_at"] - asked_at).total_seconds()
    assert to_free_s < 3
    view = batches.view(batch_id)
    assert view.request_counts.completed + view.request_counts.failed == 60


def test_lines_past_their_window_expire_while_others_run(crew: Crew, batches: Batches) -> None:
    batch_id = batches.make(30)
    with crew.db.transaction() as session:
        session.execute(text("UPDATE job_inputs SET body = jsonb_set(body, '{sampling,max_tokens}', '400')"))
    crew.dispatcher()
    crew.worker(LORRY_FAKE_STEP_MS="500")
    eventually(lambda: batches.view(batch_id).lorry.counts.running > 0, within_s=30)
    with crew.db.transaction() as session:
        session.execute(text("UPDATE jobs SET deadline = now() WHERE finished_at IS NULL"))
    eventually(lambda: batches.view(batch_id).status == "expired", within_s=15)
    view = batches.view(batch_id)
    assert view.request_counts.completed + view.request_counts.failed == 30
    assert {line["error"]["code"] for line in batches.errors(batch_id)} == {"batch_expired"}
