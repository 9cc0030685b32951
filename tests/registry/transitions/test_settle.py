"""Outcomes become rows, outputs and tallies: once per job, whatever arrives late or twice."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.db import Database
from registry.states import State
from registry.transitions import Outcome, settle
from tests.world import World

TIMING: dict[str, Any] = {
    "queued_ms": 1.0,
    "held_ms": 2.0,
    "swap": None,
    "prefill_ms": 3.0,
    "decode_ms": 4.0,
    "running_batch": {"jobs": 1, "adapters": 0},
}


def done(job_id: uuid.UUID, **changes: Any) -> Outcome:
    base: dict[str, Any] = {
        "state": "succeeded",
        "text": "요약 😀",
        "finish_reason": "stop",
        "prompt_tokens": 11,
        "output_tokens": 5,
        "timing": TIMING,
        "accounted_ms": 10.0,
        "swap_ms": 1.5,
        "engine_ms": 7.0,
    }
    return Outcome(job_id, 1, **{**base, **changes})


def tallies(session: Session) -> list[dict[str, Any]]:
    return [dict(row) for row in session.execute(text("SELECT * FROM tallies ORDER BY id")).mappings()]


def outputs(session: Session) -> dict[uuid.UUID, str]:
    return {row.job_id: row.text for row in session.execute(text("SELECT job_id, text FROM job_outputs"))}


def test_a_success_keeps_text_tokens_and_timing(system_db: Database, world: World) -> None:
    job_id = world.job_in(State.RUNNING)
    with system_db.transaction() as session:
        assert settle(session, [done(job_id)]) == {job_id}
        assert outputs(session) == {job_id: "요약 😀"}
    row = world.row(job_id)
    assert (row["state"], row["finish_reason"], row["prompt_tokens"], row["output_tokens"]) == (
        "succeeded",
        "stop",
        11,
        5,
    )
    assert {key: row["timing"][key] for key in TIMING} == TIMING


def test_total_is_the_database_clocks_and_other_is_what_the_parts_leave(system_db: Database, world: World) -> None:
    job_id = world.job_in(State.RUNNING)
    with system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET created_at = clock_timestamp() - interval '2 seconds'"))
        settle(session, [done(job_id, accounted_ms=1500.0)])
    row = world.row(job_id)
    lived_ms = (row["finished_at"] - row["created_at"]).total_seconds() * 1000
    assert abs(row["timing"]["total_ms"] - lived_ms) < 5
    assert abs(row["timing"]["total_ms"] - 1500.0 - row["timing"]["other_ms"]) < 5


def test_other_is_never_negative(system_db: Database, world: World) -> None:
    job_id = world.job_in(State.RUNNING)
    with system_db.transaction() as session:
        settle(session, [done(job_id, accounted_ms=1e9)])
    assert world.row(job_id)["timing"]["other_ms"] == 0


def test_a_failure_keeps_its_code_and_leaves_no_output(system_db: Database, world: World) -> None:
    job_id = world.job_in(State.RUNNING)
    failed = Outcome(job_id, 1, "failed", error_code="generation_failed", error_message="Try again.")
    with system_db.transaction() as session:
        assert settle(session, [failed]) == {job_id}
        assert outputs(session) == {}
        [tally] = tallies(session)
    row = world.row(job_id)
    assert (row["error_code"], row["error_message"], row["timing"]) == ("generation_failed", "Try again.", None)
    assert (tally["succeeded"], tally["failed"], tally["prompt_tokens"]) == (0, 1, 0)


def test_a_group_leaves_one_tally_per_tenant_and_adapter(system_db: Database, world: World) -> None:
    adapter = world.adapter("acme", "tickets")
    jobs = [world.job_in(State.RUNNING, adapter=adapter) for _ in range(2)] + [world.job_in(State.RUNNING)]
    outcomes = [done(jobs[0]), done(jobs[1], state="failed", text=None, error_code="x"), done(jobs[2])]
    with system_db.transaction() as session:
        assert settle(session, outcomes) == set(jobs)
        found = {tally["adapter_key"]: tally for tally in tallies(session)}
    assert set(found) == {0, adapter.adapter_id}
    mixed = found[adapter.adapter_id]
    assert (mixed["succeeded"], mixed["failed"], mixed["prompt_tokens"], mixed["output_tokens"]) == (1, 1, 22, 10)
    assert (mixed["swap_ms"], mixed["engine_ms"]) == (3.0, 14.0)


def test_the_same_outcome_twice_counts_once(system_db: Database, world: World) -> None:
    job_id = world.job_in(State.RUNNING)
    with system_db.transaction() as session:
        assert settle(session, [done(job_id), done(job_id, text="twin")]) == {job_id}
    with system_db.transaction() as session:
        assert settle(session, [done(job_id, text="late")]) == set()
        assert len(outputs(session)) == 1
        [tally] = tallies(session)
    assert (tally["succeeded"], tally["output_tokens"]) == (1, 5)


def test_a_fenced_off_outcome_does_not_hold_up_its_group(system_db: Database, world: World) -> None:
    mine, lost = world.job_in(State.RUNNING), world.job_in(State.CANCELLED)
    with system_db.transaction() as session:
        assert settle(session, [done(lost), done(mine)]) == {mine}
        assert set(outputs(session)) == {mine}


def test_a_character_that_cannot_be_stored_is_replaced_and_harms_no_neighbour(
    system_db: Database, world: World
) -> None:
    """A byte-level vocabulary has NUL among its tokens: a model may write it."""
    odd, plain = world.job_in(State.RUNNING), world.job_in(State.RUNNING)
    with system_db.transaction() as session:
        assert settle(session, [done(odd, text="a\x00b\ud800c"), done(plain)]) == {odd, plain}
        assert outputs(session) == {odd: "a\ufffdb\ufffdc", plain: "요약 😀"}


def test_no_outcomes_change_nothing(system_db: Database) -> None:
    with system_db.transaction() as session:
        assert settle(session, []) == set()


def test_the_output_lies_on_the_day_of_its_job(system_db: Database, world: World) -> None:
    job_id = world.job_in(State.RUNNING)
    with system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET created_at = '2024-02-29 23:59:59.9+00'"))
        settle(session, [done(job_id)])
        assert str(session.scalar(text("SELECT day FROM job_outputs"))) == "2024-02-29"
