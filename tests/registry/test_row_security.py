"""What the database itself keeps apart: tenants from each other, and each role from what is not its business."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, ProgrammingError

from registry.db import API_ROLE, INGEST_ROLE, SYSTEM_ROLE, Database
from registry.states import TERMINAL, State
from tests.world import World

TENANT_TABLES = ["tenants", "api_keys", "tenant_adapters", "jobs", "job_inputs", "job_outputs", "tallies", "usage_days"]


@pytest.fixture
def both(world: World, system_db: Database) -> World:
    """A row of each of two tenants in every table that has tenants."""
    for tenant in ("acme", "globex"):
        world.key(tenant)
        world.adapter(tenant, "tickets")
        world.job(tenant, model="tickets")
        with system_db.transaction() as session:
            for statement in (
                "INSERT INTO job_outputs (day, job_id, tenant_id, text) VALUES (current_date, uuidv7(), :t, 'x')",
                "INSERT INTO tallies (tenant_id, day, adapter_key) VALUES (:t, current_date, 0)",
                "INSERT INTO usage_days (tenant_id, day, adapter_key) VALUES (:t, current_date, 0)",
            ):
                session.execute(text(statement), {"t": tenant})
    return world


def tenants_seen(database: Database, tenant: str | None, table: str) -> set[str]:
    column = "id" if table == "tenants" else "tenant_id"
    with database.transaction(tenant) as session:
        return set(session.scalars(text(f"SELECT {column} FROM {table}")))  # noqa: S608


def refused(database: Database, tenant: str | None, statement: str, **values: Any) -> str:
    """The database's words for refusing the statement."""
    with pytest.raises(DBAPIError) as caught, database.transaction(tenant) as session:
        session.execute(text(statement), values)
    return str(caught.value.orig)


def test_every_table_with_a_tenant_forces_row_security_and_has_a_policy_for_each_role(system_db: Database) -> None:
    catalogue = text("""
        SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity AS forced,
               (SELECT array_agg(DISTINCT r.rolname::text) FROM pg_policy p JOIN pg_roles r ON r.oid = ANY(p.polroles)
                WHERE p.polrelid = c.oid) AS roles
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND (c.relname = 'tenants'
            OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id'))""")
    with system_db.transaction() as session:
        found = {row.relname: (row.forced, set(row.roles or ())) for row in session.execute(catalogue)}
    assert set(TENANT_TABLES) <= set(found)
    assert {table for table, state in found.items() if state != (True, {API_ROLE, SYSTEM_ROLE})} == set()


def test_nobody_but_the_owner_reaches_a_days_table_past_its_parents_policy(system_db: Database) -> None:
    grants = text("""
        SELECT count(*) FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS grant_
        WHERE c.relispartition AND grant_.grantee <> c.relowner""")
    with system_db.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM pg_class WHERE relispartition")) > 0
        assert session.scalar(grants) == 0


@pytest.mark.parametrize("table", TENANT_TABLES)
def test_a_tenant_sees_its_own_rows_and_an_unset_or_wrong_one_sees_none(
    api_db: Database, system_db: Database, both: World, table: str
) -> None:
    assert tenants_seen(system_db, None, table) == {"acme", "globex"}
    assert tenants_seen(api_db, "acme", table) == {"acme"}
    for nobody in (None, "", "initech", "acme'--", "%"):
        assert tenants_seen(api_db, nobody, table) == set()


def test_another_tenants_rows_cannot_be_changed(api_db: Database, both: World) -> None:
    with api_db.transaction("globex") as session:
        for statement in (
            "UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE tenant_id = 'acme' RETURNING 1",
            "UPDATE tenant_adapters SET is_active = false WHERE tenant_id = 'acme' RETURNING 1",
            "UPDATE api_keys SET last_used_at = now() WHERE tenant_id = 'acme' RETURNING 1",
        ):
            assert session.execute(text(statement)).all() == []


def test_rows_cannot_be_written_in_another_tenants_name(api_db: Database, both: World) -> None:
    job = "INSERT INTO jobs (id, tenant_id, deployment, model) VALUES (uuidv7(), 'acme', 'Tiny', 'Tiny')"
    body = "INSERT INTO job_inputs (day, job_id, tenant_id, body) VALUES (current_date, uuidv7(), 'acme', '{}')"
    for tenant in ("globex", None):
        assert "row-level security" in refused(api_db, tenant, job)
        assert "row-level security" in refused(api_db, tenant, body)


def test_a_job_cannot_name_another_tenants_adapter(api_db: Database, system_db: Database, both: World) -> None:
    with system_db.transaction() as session:
        foreign = session.scalar(text("SELECT adapter_id FROM tenant_adapters WHERE tenant_id = 'acme'"))
    words = refused(
        api_db,
        "globex",
        """INSERT INTO jobs (id, tenant_id, deployment, model, adapter_id)
           VALUES (uuidv7(), 'globex', 'Tiny', 'x', :foreign)""",
        foreign=foreign,
    )
    assert "fk_jobs_tenant_id_adapter_id" in words


def test_a_thousand_turns_of_pooled_connections_leak_no_tenant(
    database_url: str, api_db: Database, both: World
) -> None:
    small_pool = Database(database_url, API_ROLE, pool_size=2)
    rng = random.Random(7)
    query = text("SELECT array_agg(DISTINCT tenant_id) FROM tenant_adapters")
    try:
        for _ in range(1000):
            tenant = rng.choice(["acme", "globex", None])
            with small_pool.transaction(tenant) as session:
                assert session.scalar(query) == ([tenant] if tenant else None)
    finally:
        small_pool.close()


def test_a_failed_transaction_leaves_no_tenant_behind(database_url: str, api_db: Database, both: World) -> None:
    one = Database(database_url, API_ROLE, pool_size=1)
    try:
        with pytest.raises(ProgrammingError), one.transaction("acme") as session:
            session.execute(text("SELECT nothing FROM nowhere"))
        assert tenants_seen(one, None, "jobs") == set()
    finally:
        one.close()


def test_a_presented_keys_hash_opens_that_key_for_one_transaction_only(
    database_url: str, api_db: Database, both: World, system_db: Database
) -> None:
    with system_db.transaction() as session:
        digest = session.scalar(text("SELECT encode(sha256, 'hex') FROM api_keys WHERE tenant_id = 'acme'"))
    one = Database(database_url, API_ROLE, pool_size=1)
    count = text("SELECT count(*) FROM api_keys")
    try:
        with one.transaction() as session:
            session.execute(text("SELECT set_config('lorry.key_sha256', :hash, true)"), {"hash": digest})
            assert session.scalar(count) == 1
        with one.transaction() as session:
            assert session.scalar(count) == 0
    finally:
        one.close()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM workers",
        "UPDATE jobs SET worker = uuidv7()",
        "UPDATE jobs SET fence = fence + 1",
        "UPDATE jobs SET tenant_id = 'globex'",
        "UPDATE tenant_adapters SET path = '/elsewhere'",
        "UPDATE tenant_adapters SET digest = repeat('0', 64)",
        "UPDATE api_keys SET revoked_at = NULL",
        "UPDATE tenants SET weight = 1000",
        "INSERT INTO api_keys (id, tenant_id, name, prefix, sha256) VALUES (uuidv7(), 'acme', 'x', 'x', sha256('x'))",
        "INSERT INTO tenants (id, name) VALUES ('mallory', 'x')",
        "INSERT INTO job_outputs (day, job_id, tenant_id, text) VALUES (current_date, uuidv7(), 'acme', 'x')",
        "INSERT INTO tallies (tenant_id, day, adapter_key, succeeded) VALUES ('acme', current_date, 0, 1)",
        "INSERT INTO deployments (name, base_model) VALUES ('x', 'Tiny')",
        "UPDATE base_models SET path = '/elsewhere'",
        "DELETE FROM tallies",
        "DELETE FROM usage_days",
        "SELECT nextval('job_turns')",
        "SELECT lorry_make_partitions(current_date, 1)",
        "SELECT lorry_drop_days(current_date)",
        "SELECT body FROM job_inputs_default",
    ],
)
def test_the_api_is_refused_what_is_not_its_business(api_db: Database, both: World, statement: str) -> None:
    assert "permission denied" in refused(api_db, "acme", statement)


@pytest.mark.parametrize("state", sorted(set(State) - {State.CANCELLED}))
def test_of_all_states_the_api_can_only_set_cancelled(api_db: Database, world: World, state: State) -> None:
    """A fault in the API can stop a tenant's own job, never make one look done."""
    job_id = world.job_in(State.RUNNING)
    ended = "now()" if state in TERMINAL else "NULL"
    refused(api_db, "acme", f"UPDATE jobs SET state = '{state}', finished_at = {ended}")  # noqa: S608
    assert world.state(job_id) == "running"


def test_the_api_can_insert_only_queued_jobs(api_db: Database, both: World) -> None:
    statement = """INSERT INTO jobs (id, tenant_id, deployment, model, state, finished_at)
                   VALUES (uuidv7(), 'acme', 'Tiny', 'Tiny', 'succeeded', now())"""
    assert "row-level security" in refused(api_db, "acme", statement)


@pytest.fixture
def ingest(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url.replace("+psycopg", ""), options=f"-c role={INGEST_ROLE}") as connection:
        yield connection
        connection.rollback()


def test_the_ingest_role_copies_jobs_and_texts_and_reads_no_word_of_them(
    ingest: psycopg.Connection[Any], both: World
) -> None:
    ids = [uuid.uuid4() for _ in range(100)]
    with ingest.cursor().copy("COPY jobs (id, tenant_id, deployment, model) FROM STDIN") as copy:
        for job_id in ids:
            copy.write_row((job_id, "acme", "Tiny", "Tiny"))
    with ingest.cursor().copy("COPY job_inputs (day, job_id, tenant_id, body) FROM STDIN") as copy:
        for job_id in ids:
            copy.write_row(("2024-01-01", job_id, "acme", "{}"))
    ingest.commit()
    assert {both.state(job_id) for job_id in ids} == {"queued"}
    for statement in (
        "SELECT model FROM jobs",
        "SELECT tenant_id FROM jobs",
        "UPDATE jobs SET state = 'cancelled'",
        "SELECT id FROM tenants",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ingest.execute(statement)
        ingest.rollback()
