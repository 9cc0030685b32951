"""Kept answers: one lock a request, one answer a key, gone after their time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from registry import idempotency
from registry.db import Database
from registry.errors import IdempotencyInFlight, IdempotencyKeyReused
from registry.idempotency import Kept
from tests.world import World

SCOPE = idempotency.scope_of("POST", "/v1/jobs", "key")
DAY = timedelta(hours=24)


def answer(body: bytes = b"{}", fingerprint: bytes = b"f" * 32) -> Kept:
    return Kept(fingerprint, 202, "/v1/jobs/job_1", body, is_sealed=False)


@pytest.fixture
def tenant(world: World) -> str:
    return world.tenant()


def test_parts_of_a_scope_do_not_run_into_each_other() -> None:
    assert idempotency.scope_of("ab", "c") != idempotency.scope_of("a", "bc")


def test_an_answer_is_found_again_by_its_own_tenant_only(api_db: Database, tenant: str, world: World) -> None:
    world.tenant("globex")
    with api_db.transaction(tenant) as session:
        assert idempotency.keep(session, tenant, SCOPE, answer(b'{"a":1}'), kept_for=DAY)
    with api_db.transaction(tenant) as session:
        assert idempotency.find(session, tenant, SCOPE, b"f" * 32) == answer(b'{"a":1}')
    with api_db.transaction("globex") as session:
        assert idempotency.find(session, "globex", SCOPE, b"f" * 32) is None
        assert idempotency.find(session, tenant, SCOPE, b"f" * 32) is None


def test_another_body_under_the_same_key_is_refused(api_db: Database, tenant: str) -> None:
    with api_db.transaction(tenant) as session:
        idempotency.keep(session, tenant, SCOPE, answer(), kept_for=DAY)
        with pytest.raises(IdempotencyKeyReused):
            idempotency.find(session, tenant, SCOPE, b"g" * 32)


def test_a_request_is_in_flight_until_its_transaction_ends(api_db: Database, tenant: str) -> None:
    with api_db.transaction(tenant) as first:
        idempotency.lock(first, tenant, SCOPE)
        with api_db.transaction(tenant) as second, pytest.raises(IdempotencyInFlight):
            idempotency.lock(second, tenant, SCOPE)
        with api_db.transaction("globex") as other:
            idempotency.lock(other, "globex", SCOPE)
    with api_db.transaction(tenant) as third:
        idempotency.lock(third, tenant, SCOPE)


def test_the_first_answer_stays_unless_the_newest_is_wanted(api_db: Database, tenant: str) -> None:
    with api_db.transaction(tenant) as session:
        assert idempotency.keep(session, tenant, SCOPE, answer(b"1"), kept_for=DAY)
        assert not idempotency.keep(session, tenant, SCOPE, answer(b"2"), kept_for=DAY)
        assert idempotency.find(session, tenant, SCOPE, b"f" * 32) == answer(b"1")
        assert idempotency.keep(session, tenant, SCOPE, answer(b"3"), kept_for=DAY, replaces=True)
        assert idempotency.find(session, tenant, SCOPE, b"f" * 32) == answer(b"3")


def test_an_answer_past_its_time_is_not_found_is_replaced_and_is_purged(
    system_db: Database, api_db: Database, tenant: str
) -> None:
    with api_db.transaction(tenant) as session:
        idempotency.keep(session, tenant, SCOPE, answer(b"1"), kept_for=DAY)
    with system_db.transaction() as session:
        session.execute(text("UPDATE kept_answers SET expires_at = expires_at - interval '24 hours 1 second'"))
    with api_db.transaction(tenant) as session:
        assert idempotency.find(session, tenant, SCOPE, b"other" * 6 + b"oo") is None
        assert idempotency.keep(session, tenant, idempotency.scope_of("fresh"), answer(), kept_for=DAY)
    with system_db.transaction() as session:
        assert idempotency.purge(session) == 1
        assert session.scalar(text("SELECT count(*) FROM kept_answers")) == 1
    with api_db.transaction(tenant) as session:
        assert idempotency.keep(session, tenant, SCOPE, answer(b"2"), kept_for=DAY)
