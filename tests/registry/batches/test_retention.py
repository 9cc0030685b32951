"""Forgetting by age: days of texts, rows, uploaded files; never what is open, and nobody waits for it."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path

import pytest
from sqlalchemy import text

from registry.batches import retention
from registry.db import Database
from registry.ids import new_id
from tests.registry.batches.batch_rig import Batches
from tests.world import World

DAYS = 30


def aged(batches: Batches, batch_id: uuid.UUID, days: int) -> uuid.UUID:
    """The batch and all of it as if made that many days ago; its new id, as old as itself."""
    old_id = uuid.UUID(int=(int((time.time() - days * 86400) * 1000) << 80) + new_id().int % 2**76)
    values = {"days": days, "id": batch_id, "old": old_id}
    with batches.db.transaction() as session:
        for statement in (
            "UPDATE job_inputs SET day = day - :days WHERE job_id IN (SELECT id FROM jobs WHERE batch_id = :id)",
            "UPDATE job_outputs SET day = day - :days WHERE job_id IN (SELECT id FROM jobs WHERE batch_id = :id)",
            """INSERT INTO batches SELECT (b).* FROM (SELECT jsonb_populate_record(batches, jsonb_build_object(
               'id', cast(:old AS uuid), 'created_at', created_at - :days * interval '1 day')) AS b
               FROM batches WHERE id = :id) AS copied""",
            """UPDATE jobs SET batch_id = :old, created_at = created_at - :days * interval '1 day',
               id = overlay(id::text PLACING left(cast(:old AS text), 18) FROM 1 FOR 18)::uuid WHERE batch_id = :id""",
            """UPDATE files SET batch_id = :old, created_at = created_at - :days * interval '1 day',
               expires_at = expires_at - :days * interval '1 day' WHERE batch_id = :id""",
            "DELETE FROM batches WHERE id = :id",
        ):
            session.execute(text(statement), values)
    return old_id


def left(db: Database) -> dict[str, int]:
    counts = {}
    with db.transaction() as session:
        for table in ("jobs", "batches", "files", "job_inputs", "job_outputs"):
            counts[table] = session.scalar(text(f"SELECT count(*) FROM {table}")) or 0  # noqa: S608
    return counts


def forget(db: Database) -> list[Path]:
    with db.transaction() as session:
        more, paths = retention.delete_rows(session, DAYS)
        assert not more
    return paths


def done(batches: Batches, days: int) -> uuid.UUID:
    batch_id = batches.make(2)
    batches.run(batch_id, succeed=[1, 2])
    batches.dispatch()
    return aged(batches, batch_id, days)


def test_old_batches_go_with_their_lines_texts_and_files_and_young_ones_stay(batches: Batches) -> None:
    done(batches, DAYS + 2)
    done(batches, DAYS - 2)
    for _ in range(2):  # a batch goes once its lines are gone
        forget(batches.db)
    assert left(batches.db) == {"jobs": 2, "batches": 1, "files": 1, "job_inputs": 2, "job_outputs": 2}


def test_what_is_open_is_kept_whatever_its_age(batches: Batches) -> None:
    aged(batches, batches.make(2), DAYS + 2)
    forget(batches.db)
    found = left(batches.db)
    assert (found["jobs"], found["batches"]) == (2, 1)


def test_ended_lines_of_an_open_batch_are_kept(batches: Batches) -> None:
    batch_id = batches.make(2)
    batches.run(batch_id, succeed=[1])
    batches.dispatch()
    aged(batches, batch_id, DAYS + 2)
    forget(batches.db)
    assert left(batches.db)["jobs"] == 2


def put_file(db: Database, path: Path, *, age_days: int, expired: bool = False) -> uuid.UUID:
    file_id = uuid.UUID(int=int((time.time() - age_days * 86400) * 1000) << 80)
    path.write_bytes(b"{}\n")
    with db.transaction() as session:
        session.execute(
            text("""INSERT INTO files (id, tenant_id, purpose, filename, bytes, path, created_at, expires_at)
                    VALUES (:id, 'acme', 'batch', 'in.jsonl', 3, :path, now() - :days * interval '1 day',
                            CASE WHEN :expired THEN now() - interval '1 s' END)"""),
            {"id": file_id, "path": str(path), "days": age_days, "expired": expired},
        )
    return file_id


def test_uploaded_files_leave_the_disk_by_age_or_at_their_own_time(world: World, tmp_path: Path) -> None:
    world.tenant()
    old, expired, young = (tmp_path / name for name in ("old", "expired", "young"))
    put_file(world.db, old, age_days=DAYS + 1)
    put_file(world.db, expired, age_days=1, expired=True)
    put_file(world.db, young, age_days=2)
    paths = forget(world.db)
    retention.unlink([*paths, tmp_path / "gone already"])
    assert sorted(file.name for file in tmp_path.iterdir() if file.is_file()) == ["young"]


def test_an_input_is_kept_while_a_batch_of_it_is_open(batches: Batches, tmp_path: Path) -> None:
    batches.world.tenant()
    file_id = put_file(batches.db, tmp_path / "in", age_days=2, expired=True)
    batch_id = batches.make(1, input_file_id=file_id)
    assert forget(batches.db) == []
    batches.run(batch_id, succeed=[1])
    batches.dispatch()
    assert forget(batches.db) == [tmp_path / "in"]


@pytest.fixture
def old_day(system_db: Database, superuser: object) -> str:
    """A day's tables, long ago, with a text."""
    with system_db.transaction() as session:
        session.execute(text("SELECT lorry_make_partitions(date '2021-05-06', 1)"))
        session.execute(
            text("INSERT INTO job_inputs (day, job_id, tenant_id, body) VALUES ('2021-05-06', uuidv7(), 'acme', '{}')")
        )
    return "job_inputs_20210506"


def test_days_of_texts_are_dropped_as_tables(system_db: Database, old_day: str) -> None:
    with system_db.transaction() as session:
        assert retention.drop_days(session, DAYS) == 2
        assert retention.drop_days(session, DAYS) == 0
        assert session.scalar(text("SELECT to_regclass(:name)"), {"name": old_day}) is None


def test_dropping_gives_way_to_a_reader_at_once_and_comes_again(system_db: Database, old_day: str) -> None:
    with system_db.transaction() as reader:
        reader.execute(text("SELECT count(*) FROM job_inputs"))
        begun_s = time.monotonic()
        with system_db.transaction() as session:
            assert retention.drop_days(session, DAYS) == 0
        assert time.monotonic() - begun_s < 1.0
        # Nobody queued behind the attempt: a writer goes through while the reader still reads.
        writer = threading.Thread(target=_write, args=(system_db,))
        writer.start()
        writer.join(timeout=5)
        assert not writer.is_alive()
    with system_db.transaction() as session:
        assert retention.drop_days(session, DAYS) == 2


def _write(db: Database) -> None:
    with db.transaction() as session:
        session.execute(
            text("INSERT INTO job_inputs (day, job_id, tenant_id, body) VALUES (current_date, uuidv7(), 'acme', '{}')")
        )


def test_the_young_days_tables_stay(system_db: Database) -> None:
    days = text("SELECT count(*) FROM pg_class WHERE relname ~ '^job_inputs_\\d{8}$'")
    with system_db.transaction() as session:
        before = session.scalar(days)
        assert retention.drop_days(session, DAYS) == 0
        assert session.scalar(days) == before
