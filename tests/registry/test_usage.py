"""Usage is what the tallies say, folded or not: each job once."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from registry import tallies, transitions, usage
from registry.errors import InvalidField
from registry.transitions import Outcome
from tests.world import World


def run(world: World, *models: str) -> None:
    """Jobs of these models, run and settled: 10 tokens in, 5 out, 2 ms of swaps, 3 ms in the engine each."""
    ids = [world.job(model=model) for model in models]
    worker = world.worker()
    world.pick()
    world.claim(worker, ids)
    with world.db.transaction() as session:
        transitions.settle(
            session,
            [
                Outcome(
                    job_id,
                    1,
                    "succeeded",
                    text="y",
                    finish_reason="stop",
                    prompt_tokens=10,
                    output_tokens=5,
                    timing={},
                    swap_ms=2.0,
                    engine_ms=3.0,
                )
                for job_id in ids
            ],
        )


def today(world: World) -> list[usage.Used]:
    day = datetime.now(UTC).date()
    with world.db.transaction() as session:
        return list(usage.between(session, "acme", day, day))


def test_each_job_is_billed_once_before_and_after_folding(world: World) -> None:
    world.adapter()
    run(world, "tickets", "tickets", "Tiny")
    before = today(world)
    with world.db.transaction() as session:
        tallies.fold(session)
    run(world, "tickets")
    (base, versioned) = today(world)
    assert [(row.adapter, row.version, row.succeeded) for row in before] == [(None, None, 1), ("tickets", 1, 2)]
    assert base == before[0]
    assert (versioned.succeeded, versioned.input_tokens, versioned.output_tokens) == (3, 30, 15)
    assert (versioned.swap_ms, versioned.engine_ms) == (6.0, 9.0)


def test_another_tenants_use_is_not_in_it(world: World) -> None:
    world.adapter()
    run(world, "tickets")
    with world.db.transaction() as session:
        assert usage.between(session, world.tenant("globex"), date(2020, 1, 1), date(2100, 1, 1)) == []


def test_a_table_has_a_head_and_a_row_a_day_and_version(world: World) -> None:
    world.adapter()
    run(world, "tickets")
    head, row, *rest = usage.as_csv(today(world)).split("\r\n")
    assert head.split(",")[:4] == ["day", "adapter", "version", "succeeded"]
    assert row.split(",")[1:4] == ["tickets", "1", "1"]
    assert rest == [""]


@pytest.mark.parametrize(("month", "last"), [("2024-02", 29), ("2025-02", 28), ("2026-12", 31)])
def test_a_month_ends_on_its_last_day(month: str, last: int) -> None:
    assert [day.day for day in usage.days_of(month)] == [1, last]


@pytest.mark.parametrize("month", ["2026-13", "26-1", "", "2026-1-1"])
def test_what_is_no_month_is_refused(month: str) -> None:
    with pytest.raises(InvalidField):
        usage.days_of(month)
