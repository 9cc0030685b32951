"""Every state times every arrow: what the database lets through, and what each transition does from each state."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import product

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from registry import backlog, transitions
from registry.db import Database
from registry.models import Adapter
from registry.states import ARROWS, OPEN, TERMINAL, State
from registry.transitions import Outcome
from tests.world import World

# All other columns go along, so that nothing but the arrow itself can be refused.
MOVE = text("""
UPDATE jobs SET state = :state, worker = CASE WHEN :running THEN :worker ELSE NULL END, started_at = NULL,
    finished_at = CASE WHEN :ended THEN now() ELSE NULL END, error_code = CASE WHEN :failed THEN 'x' ELSE NULL END
WHERE id = :id
""")


def move(session: Session, job_id: uuid.UUID, state: State) -> None:
    marks = {"running": state == State.RUNNING, "ended": state in TERMINAL, "failed": state == State.FAILED}
    session.execute(MOVE, {"id": job_id, "state": state, "worker": uuid.uuid4(), **marks})


@pytest.mark.parametrize(("source", "target"), list(product(State, State)))
def test_the_database_accepts_exactly_the_listed_arrows(
    system_db: Database, world: World, source: State, target: State
) -> None:
    job_id = world.job_in(source)
    if target == source or target in ARROWS[source]:
        with system_db.transaction() as session:
            move(session, job_id, target)
        assert world.state(job_id) == target
    else:
        with pytest.raises(IntegrityError, match=f"cannot go from {source} to {target}"), system_db.transaction() as s:
            move(s, job_id, target)
        assert world.state(job_id) == source


Act = Callable[[Session, uuid.UUID, uuid.UUID, Adapter], object]


def _settle(state: str) -> Act:
    def act(session: Session, job: uuid.UUID, worker: uuid.UUID, adapter: Adapter) -> object:
        code = "x" if state == "failed" else None
        return transitions.settle(session, [Outcome(job, 1, state, text="done", error_code=code)])  # type: ignore[arg-type]

    return act


def _cancel_lines(session: Session, job: uuid.UUID, worker: uuid.UUID, adapter: Adapter) -> object:
    session.execute(
        text("""WITH batch AS (
            INSERT INTO batches (id, tenant_id, source, endpoint, status, completion_window, total)
            VALUES (uuidv7(), 'acme', 'file', 'x', 'cancelling', '24h', 1) RETURNING id)
        UPDATE jobs SET batch_id = batch.id, line_no = 1 FROM batch WHERE jobs.id = :job AND finished_at IS NULL"""),
        {"job": job},
    )
    return transitions.cancel_lines(session)


ACTS: dict[str, tuple[Act, dict[State, State]]] = {
    "pick": (lambda s, job, w, a: backlog.pick(s, "Tiny", 10), {State.QUEUED: State.DISPATCHED}),
    "claim": (lambda s, job, w, a: transitions.claim(s, [job], "Tiny", w), {State.DISPATCHED: State.RUNNING}),
    "start": (lambda s, job, w, a: transitions.start(s, [(job, 1)]), {State.RUNNING: State.RUNNING}),
    "settle as succeeded": (_settle("succeeded"), {State.RUNNING: State.SUCCEEDED}),
    "settle as failed": (_settle("failed"), {State.RUNNING: State.FAILED}),
    "hand back": (lambda s, job, w, a: transitions.hand_back(s, [(job, 1)]), {State.RUNNING: State.QUEUED}),
    "rescue": (lambda s, job, w, a: transitions.rescue(s, w), {State.RUNNING: State.QUEUED}),
    "message lost": (lambda s, job, w, a: transitions.message_lost(s, [job]), {State.DISPATCHED: State.QUEUED}),
    "cancel lines": (_cancel_lines, dict.fromkeys(OPEN, State.CANCELLED)),
    "cancel": (lambda s, job, w, a: transitions.cancel(s, "acme", job), dict.fromkeys(OPEN, State.CANCELLED)),
    "expire": (lambda s, job, w, a: transitions.expire(s), dict.fromkeys(OPEN, State.EXPIRED)),
    "adapter gone": (
        lambda s, job, w, a: transitions.fail_unavailable(s, "acme", a.adapter_id),
        dict.fromkeys(OPEN, State.FAILED),
    ),
}


@pytest.mark.parametrize(("name", "source"), list(product(ACTS, State)))
def test_each_transition_moves_the_states_it_is_for_and_touches_no_other(
    system_db: Database, world: World, name: str, source: State
) -> None:
    act, moves = ACTS[name]
    adapter = world.adapter()
    worker = world.worker()
    job_id = world.job_in(source, worker=worker, adapter=adapter)
    before = world.row(job_id)
    with system_db.transaction() as session:
        act(session, job_id, worker, adapter)
    after = world.row(job_id)
    if source in moves:
        assert after["state"] == moves[source]
        assert after != before
    else:
        assert after == before
    with system_db.transaction() as session:
        outputs = session.scalar(text("SELECT count(*) FROM job_outputs"))
        counted = session.execute(text(f"SELECT {', '.join(TERMINAL)} FROM tallies")).mappings().all()  # noqa: S608
    assert outputs == int(after["state"] == State.SUCCEEDED != source)
    ended = {state: int(state == after["state"]) for state in TERMINAL}
    assert [dict(tally) for tally in counted] == ([ended] if after["state"] in TERMINAL and source in OPEN else [])


def test_every_arrow_is_some_transitions_and_no_transition_makes_another() -> None:
    made = {(source, target) for _, moves in ACTS.values() for source, target in moves.items() if source != target}
    assert made == {(source, target) for source, targets in ARROWS.items() for target in targets}


@pytest.mark.parametrize("fence", [0, 2])
@pytest.mark.parametrize("name", ["start", "settle as succeeded", "settle as failed", "hand back"])
def test_a_writer_with_another_fence_changes_nothing(system_db: Database, world: World, name: str, fence: int) -> None:
    job_id = world.job_in(State.RUNNING)
    before = world.row(job_id)
    stale: dict[str, Callable[[Session], object]] = {
        "start": lambda s: transitions.start(s, [(job_id, fence)]),
        "hand back": lambda s: transitions.hand_back(s, [(job_id, fence)]),
        "settle as succeeded": lambda s: transitions.settle(s, [Outcome(job_id, fence, "succeeded", text="late")]),
        "settle as failed": lambda s: transitions.settle(s, [Outcome(job_id, fence, "failed", error_code="x")]),
    }
    with system_db.transaction() as session:
        assert stale[name](session) == set()
        assert session.scalar(text("SELECT count(*) FROM job_outputs")) == 0
        assert session.scalar(text("SELECT count(*) FROM tallies")) == 0
    assert world.row(job_id) == before


def test_the_database_refuses_a_fence_that_goes_down(system_db: Database, world: World) -> None:
    job_id = world.job_in(State.RUNNING)
    with pytest.raises(IntegrityError, match="fence never goes down"), system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET fence = fence - 1 WHERE id = :id"), {"id": job_id})


def test_the_database_refuses_rows_whose_columns_contradict_their_state(system_db: Database, world: World) -> None:
    running, ended = world.job_in(State.RUNNING), world.job_in(State.SUCCEEDED)
    nonsense = {
        "UPDATE jobs SET worker = NULL WHERE id = :id": (running, "running_has_worker"),
        "UPDATE jobs SET state = 'queued' WHERE id = :id": (running, "waiting_not_started"),
        "UPDATE jobs SET state = 'cancelled' WHERE id = :id": (running, "finished"),
        "UPDATE jobs SET state = 'failed', finished_at = now() WHERE id = :id": (running, "failed_has_code"),
        "UPDATE jobs SET finished_at = NULL WHERE id = :id": (ended, "finished"),
        "UPDATE jobs SET line_no = 1 WHERE id = :id": (ended, "line_of_batch"),
    }
    for statement, (job_id, check) in nonsense.items():
        with pytest.raises(IntegrityError, match=f"ck_jobs_{check}"), system_db.transaction() as session:
            session.execute(text(statement), {"id": job_id})
