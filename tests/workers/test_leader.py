"""One leads, by a lock of the very connection that picks: a lost connection is a lost role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from registry.db import Database
from registry.errors import Unavailable
from tests.workers.planner_rig import until
from workers.leader import Leader


@pytest.fixture
def pair(system_db: Database) -> Iterator[tuple[Leader, Leader]]:
    """Two that want to lead; the first does."""
    first, second = Leader(system_db.engine), Leader(system_db.engine)
    assert first.try_to_lead()
    yield first, second
    first.resign()
    second.resign()


def test_only_one_leads_and_asking_again_keeps_the_role(pair: tuple[Leader, Leader]) -> None:
    first, second = pair
    assert [first.try_to_lead(), second.try_to_lead(), first.leads, second.leads] == [True, False, True, False]


def test_who_resigns_makes_way(pair: tuple[Leader, Leader]) -> None:
    first, second = pair
    first.resign()
    assert not first.leads
    assert second.try_to_lead()


def test_a_leaders_transaction_commits_or_leaves_nothing(pair: tuple[Leader, Leader]) -> None:
    first, _ = pair
    add = text("INSERT INTO tenants (id, name, weight) VALUES ('acme', 'Acme', 1)")

    def break_off() -> None:
        with first.transaction() as session:
            session.execute(add)
            raise KeyError("a defect")

    with pytest.raises(KeyError):
        break_off()
    assert first.leads, "an error that is not the database's costs no role"
    with first.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM tenants")) == 0
        session.execute(add)
    with first.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM tenants")) == 1


def test_a_lost_connection_is_a_lost_role(pair: tuple[Leader, Leader], superuser: psycopg.Connection[Any]) -> None:
    first, second = pair
    with first.transaction() as session:
        pid = session.scalar(text("SELECT pg_backend_pid()"))
    superuser.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with pytest.raises(Unavailable), first.transaction() as session:
        session.execute(text("SELECT 1"))
    assert not first.leads
    assert second.try_to_lead()


def test_a_refused_statement_costs_no_role(pair: tuple[Leader, Leader]) -> None:
    first, second = pair
    with pytest.raises(ProgrammingError), first.transaction() as session:
        session.execute(text("SELECT nothing FROM nowhere"))
    assert not second.try_to_lead()
    with first.transaction() as session:
        assert session.scalar(text("SELECT 1")) == 1


def test_a_leader_that_says_nothing_for_too_long_is_replaced(system_db: Database) -> None:
    frozen, spare = Leader(system_db.engine, idle_s=0.2), Leader(system_db.engine)
    assert frozen.try_to_lead()
    assert not spare.try_to_lead()
    until(spare.try_to_lead)
    with pytest.raises(Unavailable), frozen.transaction() as session:
        session.execute(text("SELECT 1"))
    assert not frozen.leads
    spare.resign()
