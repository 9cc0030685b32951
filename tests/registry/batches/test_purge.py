"""Deleting on request: texts go at once, what is open stays, other tenants' things stay, usage stays."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from registry import tallies, transitions
from registry.batches import purge
from registry.db import Database
from registry.errors import NotEnded, NotFound
from tests.registry.batches.batch_rig import Batches
from tests.world import World

TABLES = ("jobs", "job_inputs", "job_outputs", "batches", "batch_bad_lines", "files")


def rows(db: Database) -> dict[str, int]:
    with db.transaction() as session:
        return {table: session.scalar(text(f"SELECT count(*) FROM {table}")) or 0 for table in TABLES}  # noqa: S608


def test_a_batch_goes_with_everything_of_it_and_its_usage_stays(batches: Batches, api_db: Database) -> None:
    gone = batches.make(3, bad=[3], on_bad_line="skip")
    batches.run(gone, succeed=[1], fail=[2])
    batches.dispatch()
    kept = batches.make(1, "globex")
    with api_db.transaction("acme") as session:
        purge.purge_batch(session, "acme", gone)
    expected = {"jobs": 1, "job_inputs": 1, "job_outputs": 0, "batches": 1, "batch_bad_lines": 0, "files": 0}
    assert rows(batches.db) == expected
    assert batches.view(kept, "globex").request_counts.total == 1
    with batches.db.transaction() as session:
        assert session.scalar(text("SELECT succeeded + failed FROM usage_days")) == 2


def test_an_open_batch_is_not_deleted_in_any_open_state(batches: Batches, api_db: Database) -> None:
    batch_id = batches.make(1)
    before = rows(batches.db)
    for _ in ("in_progress", "cancelling"):
        with pytest.raises(NotEnded), api_db.transaction("acme") as session:
            purge.purge_batch(session, "acme", batch_id)
        batches.cancel(batch_id)
    assert rows(batches.db) == before


def test_a_single_job_goes_whole(world: World, system_db: Database, api_db: Database) -> None:
    job_id, other = world.job(), world.job()
    with pytest.raises(NotEnded), api_db.transaction("acme") as session:
        purge.purge_job(session, "acme", job_id)
    with system_db.transaction() as session:
        transitions.cancel(session, "acme", job_id)
        tallies.fold(session)
    with api_db.transaction("acme") as session:
        purge.purge_job(session, "acme", job_id)
    found = rows(system_db)
    assert (found["jobs"], found["job_inputs"]) == (1, 1)
    assert world.state(other) == "queued"


def test_a_line_of_a_batch_loses_its_texts_and_stays_counted(batches: Batches, api_db: Database) -> None:
    batch_id = batches.make(2)
    batches.run(batch_id, succeed=[1])
    with api_db.transaction("acme") as session:
        purge.purge_job(session, "acme", batches.jobs(batch_id)[1])
    found = rows(batches.db)
    assert (found["jobs"], found["job_inputs"], found["job_outputs"]) == (2, 1, 0)
    batches.run(batch_id, succeed=[2])
    assert batches.dispatch() == ["completed"]
    assert batches.view(batch_id).request_counts.completed == 2


def test_missing_and_foreign_things_are_alike(batches: Batches, api_db: Database) -> None:
    batch_id = batches.make(1)
    batches.cancel(batch_id)
    batches.dispatch()
    job_id = batches.jobs(batch_id)[1]
    words = set()
    for wanted in (batch_id, uuid.uuid4()):
        with pytest.raises(NotFound) as caught, api_db.transaction("globex") as session:
            purge.purge_batch(session, "globex", wanted)
        words.add(caught.value.message)
    for wanted in (job_id, uuid.uuid4()):
        with pytest.raises(NotFound) as caught, api_db.transaction("globex") as session:
            purge.purge_job(session, "globex", wanted)
        words.add(caught.value.message)
    assert len(words) == 2
    assert rows(batches.db)["jobs"] == 1


@pytest.mark.parametrize("table", ["jobs", "job_inputs", "batches"])
def test_the_database_keeps_what_is_open_from_the_apis_deletes(batches: Batches, api_db: Database, table: str) -> None:
    batches.make(2)
    before = rows(batches.db)
    with api_db.transaction("acme") as session:
        session.execute(text(f"DELETE FROM {table}"))  # noqa: S608
    assert rows(batches.db) == before


def test_the_api_cannot_delete_what_is_not_for_tenants_to_delete(batches: Batches, api_db: Database) -> None:
    batches.make(1)
    for table in ("tallies", "usage_days", "tenant_adapters", "tenants"):
        with pytest.raises(DBAPIError, match="permission denied"), api_db.transaction("acme") as session:
            session.execute(text(f"DELETE FROM {table}"))  # noqa: S608
