"""The schema: equal to the models, safe to upgrade twice and from two processes, and what it promises to readers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text

from registry import migrations
from registry.db import API_ROLE, Database
from registry.models import Base
from registry.settings import child_environment
from tests.world import World

SEED_QUERY = """
SELECT tenant_id, path, rank FROM tenant_adapters
 WHERE is_active = TRUE AND base_model = 'Tiny';
"""
SEED_COLUMNS = {
    "tenant_id": ("text", False),
    "version": ("integer", False),
    "path": ("text", False),
    "rank": ("integer", False),
    "base_model": ("text", False),
    "is_active": ("boolean", False),
    "created_at": ("timestamp with time zone", False),
}


@pytest.fixture
def fresh_url(database_url: str) -> Iterator[str]:
    """An empty database in the same cluster."""
    name = f"fresh_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield database_url.rpartition("/")[0] + "/" + name
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_the_models_describe_the_schema(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.connect() as connection:
        days = set(connection.scalars(text("SELECT relname FROM pg_class WHERE relispartition")))
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_server_default": True,
                "include_object": lambda thing, name, kind, reflected, other: (
                    not (
                        (kind == "table" and name in days | {"alembic_version"})
                        or (kind == "index" and thing.table.name in days)
                    )
                ),
            },
        )
        differences = compare_metadata(context, Base.metadata)
    engine.dispose()
    assert differences == []


def test_a_second_upgrade_changes_nothing(fresh_url: str) -> None:
    migrations.upgrade(fresh_url)
    before = schema_of(fresh_url)
    migrations.upgrade(fresh_url)
    assert schema_of(fresh_url) == before
    assert len(before) > 50


def test_a_database_that_a_later_release_has_upgraded_is_left_as_it_is(fresh_url: str) -> None:
    migrations.upgrade(fresh_url)
    with psycopg.connect(fresh_url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        migrations.upgrade(fresh_url)
        found = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert found == [("9999",)]


@pytest.mark.parametrize(
    ("revision", "behind", "later"),
    [(None, True, False), ("0001", True, False), (migrations.head(), False, False), ("9999", False, True)],
)
def test_where_a_database_stands(revision: str | None, behind: bool, later: bool) -> None:
    assert (migrations.is_behind(revision), migrations.is_later(revision)) == (behind, later)


def test_two_upgrades_at_once_both_succeed(fresh_url: str) -> None:
    environment = child_environment(LORRY_DATABASE_URL=fresh_url)
    command = [sys.executable, "-m", "registry.migrations"]
    upgrades = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    words = [upgrade.communicate(timeout=60)[1] for upgrade in upgrades]
    assert [upgrade.returncode for upgrade in upgrades] == [0, 0], words
    assert len(schema_of(fresh_url)) > 50


def test_an_upgrade_waits_for_another_ones_long_migration(fresh_url: str) -> None:
    """Table locks are given up after 4 s; waiting for one's turn is not."""
    with psycopg.connect(fresh_url.replace("+psycopg", ""), autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (0x10AA71,))
        failures: list[BaseException] = []
        thread = threading.Thread(target=_upgrade_into, args=(fresh_url, failures))
        thread.start()
        deadline_s = time.monotonic() + 4.5
        while time.monotonic() < deadline_s and thread.is_alive():
            thread.join(0.1)
        assert thread.is_alive()
        other.execute("SELECT pg_advisory_unlock(%s)", (0x10AA71,))
        thread.join()
    assert failures == []


def test_the_seeds_routing_query_works_as_written(system_db: Database, world: World) -> None:
    adapter = world.adapter("acme", "tickets")
    world.adapter("acme", "tickets")
    world.base("Other")
    world.adapter("globex", "notes", base="Other")
    with system_db.transaction() as session:
        assert [tuple(row) for row in session.execute(text(SEED_QUERY))] == [("acme", adapter.path, 8)]


def test_tenant_adapters_has_the_seeds_columns(system_db: Database) -> None:
    query = text("""SELECT column_name, data_type, is_nullable = 'YES' AS nullable, column_default
                    FROM information_schema.columns WHERE table_name = 'tenant_adapters'""")
    with system_db.transaction() as session:
        found = {row.column_name: row for row in session.execute(query)}
    assert {name: (found[name].data_type, found[name].nullable) for name in SEED_COLUMNS} == SEED_COLUMNS
    assert (found["is_active"].column_default, found["created_at"].column_default) == ("false", "now()")


def test_days_are_made_ahead_once(system_db: Database) -> None:
    make = text("SELECT lorry_make_partitions(date '2031-03-01', 3)")
    with system_db.transaction() as session:
        assert session.scalar(make) == 6
        assert session.scalar(make) == 0
        assert session.scalar(text("SELECT to_regclass('job_inputs_20310302') IS NOT NULL"))
        session.rollback()


def test_the_coming_week_has_its_days_from_the_first_migration(fresh_url: str) -> None:
    migrations.upgrade(fresh_url)
    with psycopg.connect(fresh_url.replace("+psycopg", "")) as connection:
        missing = connection.execute(
            """SELECT count(*) FROM generate_series(-1, 7) AS n WHERE
               to_regclass('job_outputs_' || to_char((now() AT TIME ZONE 'UTC')::date + n, 'YYYYMMDD')) IS NULL"""
        ).fetchone()
    assert missing == (0,)


def test_a_day_that_nobody_made_is_caught_and_stays_readable(system_db: Database) -> None:
    insert = text("INSERT INTO job_inputs (day, job_id, tenant_id, body) VALUES ('2032-01-02', uuidv7(), 'acme', '{}')")
    with system_db.transaction() as session:
        session.execute(insert)
        assert session.scalar(text("SELECT count(*) FROM job_inputs WHERE day = '2032-01-02'")) == 1
        assert session.scalar(text("SELECT lorry_make_partitions(date '2032-01-01', 3)")) == 5
        assert session.scalar(text("SELECT count(*) FROM job_inputs WHERE day = '2032-01-02'")) == 1
        session.rollback()


def test_one_login_takes_every_role(database_url: str, api_db: Database) -> None:
    with api_db.transaction() as session:
        assert session.scalar(text("SELECT current_user")) == API_ROLE


def schema_of(url: str) -> list[tuple[Any, ...]]:
    """Tables, columns and policies, comparable."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        rows: list[tuple[Any, ...]] = connection.execute(
            """SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns
               WHERE table_schema = 'public'
               UNION ALL SELECT polrelid::regclass::text, polname::text, polcmd::text FROM pg_policy ORDER BY 1, 2"""
        ).fetchall()
    return rows


def _upgrade_into(url: str, failures: list[BaseException]) -> None:
    try:
        migrations.upgrade(url)
    except BaseException as error:  # noqa: BLE001
        failures.append(error)
