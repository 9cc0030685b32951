"""What the database refuses of a batch, whoever asks: other arrows, counts that do not add up, the API."""

from __future__ import annotations

import uuid
from itertools import product

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError

from registry import transitions
from registry.batches import ends
from registry.db import Database
from registry.models.batches import BATCH_ARROWS, BATCH_ENDS, BATCH_STATES
from tests.registry.batches.batch_rig import Batches

PUT = """
INSERT INTO batches (id, tenant_id, source, endpoint, completion_window, status {column})
VALUES (:id, 'acme', 'file', '/v1/completions', '24h', :status {value})
"""


@pytest.mark.parametrize(("source", "target"), list(product(BATCH_STATES, BATCH_STATES)))
def test_the_database_accepts_exactly_the_listed_arrows(batches: Batches, source: str, target: str) -> None:
    batches.world.tenant()
    batch_id = uuid.uuid4()
    column, value = (f", {source}_at", ", now()") if source in BATCH_ENDS else ("", "")
    moment = f", {target}_at = now()" if target in BATCH_ENDS else ""
    with batches.db.transaction() as session:
        session.execute(text(PUT.format(column=column, value=value)), {"id": batch_id, "status": source})
    move = text(f"UPDATE batches SET status = :status{moment} WHERE id = :id")  # noqa: S608
    if source == target or target in BATCH_ARROWS[source]:
        with batches.db.transaction() as session:
            assert session.execute(move, {"status": target, "id": batch_id}).rowcount == 1  # type: ignore[attr-defined]
    else:
        words = f"cannot go from {source} to {target}"
        with pytest.raises(IntegrityError, match=words), batches.db.transaction() as session:
            session.execute(move, {"status": target, "id": batch_id})


def test_the_database_refuses_counts_that_go_down_or_do_not_add_up(batches: Batches) -> None:
    batch_id = batches.make(2)
    batches.run(batch_id, succeed=[1])
    batches.dispatch()
    for change, words in {
        "succeeded = 0": "counts never go down",
        "failed = 2": "counts_add_up",
        "status = 'finalizing'": "all_counted_at_the_end",
        "completed_at = now()": "one_end",
    }.items():
        with pytest.raises(IntegrityError, match=words), batches.db.transaction() as session:
            session.execute(text(f"UPDATE batches SET {change} WHERE id = :id"), {"id": batch_id})  # noqa: S608


@pytest.mark.parametrize(
    "change", ["status = 'completed', completed_at = now()", "status = 'finalizing'", "succeeded = 1"]
)
def test_the_api_may_only_ask_for_a_batchs_end(batches: Batches, api_db: Database, change: str) -> None:
    batch_id = batches.make(1)
    with pytest.raises(DBAPIError), api_db.transaction("acme") as session:
        session.execute(text(f"UPDATE batches SET {change} WHERE id = :id"), {"id": batch_id})  # noqa: S608
    with api_db.transaction("acme") as session:
        assert ends.request_cancel(session, "acme", batch_id) is True


def test_the_api_counts_the_job_it_cancels_and_nothing_else(batches: Batches, api_db: Database) -> None:
    batch_id = batches.make(1)
    with api_db.transaction("acme") as session:
        assert transitions.cancel(session, "acme", batches.jobs(batch_id)[1]) is True
    for row in ("'acme', current_date, 0, 2", "'globex', current_date, 0, 1"):
        with pytest.raises(DBAPIError, match="row-level security"), api_db.transaction("acme") as session:
            session.execute(text(f"INSERT INTO tallies (tenant_id, day, adapter_key, cancelled) VALUES ({row})"))  # noqa: S608
    assert batches.dispatch() == ["completed"]
