"""Transactions: all or nothing, under one role, and an outage is said to be one."""

from __future__ import annotations

import threading
import time
import traceback
import uuid

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

from registry import tenants
from registry.db import SYSTEM_ROLE, Database
from registry.embedded.ports import free_port
from registry.errors import Unavailable
from tests.world import World


def count(db: Database) -> int:
    with db.transaction() as session:
        return int(session.scalar(text("SELECT count(*) FROM tenants")) or 0)


def test_a_transaction_commits_at_its_end_and_rolls_back_on_any_error(system_db: Database) -> None:
    class StopHere(Exception):
        pass

    def fail() -> None:
        with system_db.transaction() as session:
            tenants.create(session, "acme", "x")
            raise StopHere

    with pytest.raises(StopHere):
        fail()
    assert count(system_db) == 0
    with system_db.transaction() as session:
        tenants.create(session, "acme", "x")
    assert count(system_db) == 1


def test_an_unreachable_database_is_unavailable_and_soon() -> None:
    away = Database(f"postgresql+psycopg://lorry@127.0.0.1:{free_port()}/lorry", SYSTEM_ROLE)
    begun_s = time.monotonic()
    with pytest.raises(Unavailable, match="try again"), away.transaction() as session:
        session.execute(text("SELECT 1"))
    assert time.monotonic() - begun_s < 3


def test_a_lost_connection_is_unavailable_in_mid_transaction_and_replaced_afterwards(
    database_url: str, system_db: Database
) -> None:
    one = Database(database_url, SYSTEM_ROLE, pool_size=1)
    pid = text("SELECT pg_backend_pid()")

    def lose_it_midway() -> None:
        with one.transaction() as session:
            end_backend(database_url, session.scalar(pid))
            session.execute(text("SELECT 1"))

    try:
        with pytest.raises(Unavailable):
            lose_it_midway()
        with one.transaction() as session:
            idle = session.scalar(pid)
        end_backend(database_url, idle)
        assert count(one) == 0
    finally:
        one.close()


def test_no_row_and_no_parameter_is_in_an_errors_words(system_db: Database, world: World) -> None:
    secret = uuid.uuid4().hex
    world.tenant("acme")
    for statement in (
        "INSERT INTO job_outputs (day, job_id, tenant_id, text) VALUES (NULL, uuidv7(), 'acme', :words)",
        "SELECT cast('{' || to_json(cast(:words AS text)) || ':' AS jsonb)",
        "INSERT INTO jobs (id, tenant_id, deployment, model, custom_id) VALUES (uuidv7(), 'acme', NULL, 'x', :words)",
        "INSERT INTO tenants (id, name) VALUES ('acme', :words)",
    ):
        with pytest.raises(DBAPIError) as caught, system_db.transaction() as session:
            session.execute(text(statement), {"words": secret})
        assert secret not in "".join(traceback.format_exception(caught.value))


def test_a_pool_in_full_use_is_unavailable_rather_than_an_endless_wait(
    database_url: str, system_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Database(database_url, SYSTEM_ROLE, pool_size=1)
    monkeypatch.setattr(one.engine.pool, "_timeout", 0.1)
    try:
        with one.transaction() as session:
            session.execute(text("SELECT 1"))
            with pytest.raises(Unavailable), one.transaction() as second:
                second.execute(text("SELECT 1"))
    finally:
        one.close()


def test_other_database_errors_stay_what_they_are(system_db: Database, world: World) -> None:
    world.tenant("acme")
    with pytest.raises(IntegrityError), system_db.transaction() as session:
        session.execute(text("INSERT INTO tenants (id, name) VALUES ('acme', 'x')"))
    with pytest.raises(ProgrammingError), system_db.transaction() as session:
        session.execute(text("SELECT nothing FROM nowhere"))


def test_every_connection_has_its_role_utc_and_limits(system_db: Database, api_db: Database) -> None:
    query = text("""SELECT current_user::text, current_setting('timezone'), current_setting('statement_timeout'),
                           current_setting('lock_timeout'), current_setting('application_name')""")
    for db in (system_db, api_db):
        with db.transaction() as session:
            assert tuple(session.execute(query).one()) == (db.role, "UTC", "30s", "5s", db.role)


def test_threads_share_one_database_object(system_db: Database) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(10):
                with system_db.transaction() as session:
                    tenants.create(session, f"t{number}-{n}", "x")
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert count(system_db) == 120


def end_backend(url: str, pid: int | None) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as superuser:
        superuser.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
