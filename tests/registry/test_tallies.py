"""Tallies: folded into days once, whatever lies there."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry import tallies
from registry.db import Database

ADD = text("""
INSERT INTO tallies (tenant_id, day, adapter_key, succeeded, failed, prompt_tokens, output_tokens, swap_ms, engine_ms)
VALUES (:tenant, :day, :adapter, 1, 2, 30, 40, 0.5, 6.0)
""")


def add(session: Session, tenant: str, day: str = "2024-01-01", adapter: int = 0) -> None:
    session.execute(ADD, {"tenant": tenant, "day": day, "adapter": adapter})


def days(session: Session) -> list[tuple[Any, ...]]:
    query = text("SELECT tenant_id, day::text, adapter_key, succeeded, swap_ms FROM usage_days ORDER BY 1, 2, 3")
    return [tuple(row) for row in session.execute(query)]


def test_tallies_are_summed_by_tenant_day_and_adapter(system_db: Database) -> None:
    with system_db.transaction() as session:
        for _ in range(3):
            add(session, "acme")
        add(session, "acme", adapter=7)
        add(session, "acme", day="2024-01-02")
        add(session, "globex")
        assert tallies.fold(session) == 6
        assert days(session) == [
            ("acme", "2024-01-01", 0, 3, 1.5),
            ("acme", "2024-01-01", 7, 1, 0.5),
            ("acme", "2024-01-02", 0, 1, 0.5),
            ("globex", "2024-01-01", 0, 1, 0.5),
        ]


def test_a_fold_adds_to_what_was_folded_and_leaves_nothing_to_fold_twice(system_db: Database) -> None:
    with system_db.transaction() as session:
        add(session, "acme")
        assert tallies.fold(session) == 1
        add(session, "acme")
        assert [tallies.fold(session), tallies.fold(session)] == [1, 0]
        row = session.execute(text("SELECT * FROM usage_days")).one()
    assert (row.succeeded, row.failed, row.prompt_tokens, row.output_tokens) == (2, 4, 60, 80)
    assert (row.swap_ms, row.engine_ms) == (1.0, 12.0)


def test_a_fold_that_is_rolled_back_loses_nothing(system_db: Database) -> None:
    with system_db.transaction() as session:
        add(session, "acme")
    with system_db.transaction() as session:
        tallies.fold(session)
        session.rollback()
    with system_db.transaction() as session:
        assert tallies.fold(session) == 1
        assert len(days(session)) == 1
