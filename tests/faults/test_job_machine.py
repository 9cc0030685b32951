"""Random histories of jobs and their batch against real PostgreSQL, held against a plain model: row 32 of the plan."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import text

from registry import presence, tallies, transitions
from registry.batches import ends
from registry.ids import new_id
from registry.models import Batch, Job
from registry.states import TERMINAL
from registry.transitions import Outcome
from registry.transitions.back import MAX_CRASHES
from tests.world import World

LINES = 4
_ROWS = text("SELECT * FROM jobs WHERE id = ANY(:ids)")
_FOLDED = text("SELECT succeeded, failed, cancelled, expired, total, status FROM batches WHERE id = :id")


class JobMachine(RuleBasedStateMachine):
    """A batch of a few lines; workers come, claim, settle, die; the tenant cancels; the clock expires."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.world.base()
        self.tenant = self.world.tenant("acme")
        self.worker = self.world.worker()
        self.batch = new_id()
        self.ender = ends.Ender(timedelta(days=30))
        self.before: dict[uuid.UUID, Any] = {}
        self.counted: Counter[str] = Counter()
        with self.world.db.transaction() as session:
            now = session.scalar(text("SELECT now()"))
            session.add(
                Batch(
                    id=self.batch,
                    tenant_id=self.tenant,
                    source="ndjson",
                    endpoint="/v1/jobs",
                    status="in_progress",
                    completion_window="24h",
                    on_bad_line="fail",
                    total=LINES,
                    created_at=now,
                    in_progress_at=now,
                    expires_at=now + timedelta(days=1),
                )
            )
            session.flush()
            self.jobs = [new_id() for _ in range(LINES)]
            session.add_all(
                Job(id=job, tenant_id=self.tenant, deployment="Tiny", model="Tiny", batch_id=self.batch, line_no=number)
                for number, job in enumerate(self.jobs, 1)
            )

    def row(self, number: int) -> dict[str, Any]:
        return self.world.row(self.jobs[number])

    numbers = st.integers(0, LINES - 1)

    @rule()
    def pick(self) -> None:
        self.world.pick()

    @rule(number=numbers)
    def claim(self, number: int) -> None:
        self.world.claim(self.worker, [self.jobs[number]])

    @rule(number=numbers, late=st.integers(0, 1))
    def begin(self, number: int, late: int) -> None:
        with self.world.db.transaction() as session:
            transitions.start(session, [(self.jobs[number], self.row(number)["fence"] - late)], ["now"])

    @rule(number=numbers, late=st.integers(0, 1), state=st.sampled_from(["succeeded", "failed"]))
    def settle(self, number: int, late: int, state: Any) -> None:
        row = self.row(number)
        good = state == "succeeded"
        outcome = Outcome(
            self.jobs[number],
            row["fence"] - late,
            state,
            text="out" if good else None,
            timing={},
            error_code=None if good else "generation_failed",
            error_message=None if good else "no",
        )
        with self.world.db.transaction() as session:
            settled = transitions.settle(session, [outcome])
        assert bool(settled) == (row["state"] == "running" and not late)

    @rule(number=numbers, late=st.integers(0, 1))
    def hand_back(self, number: int, late: int) -> None:
        with self.world.db.transaction() as session:
            transitions.hand_back(session, [(self.jobs[number], self.row(number)["fence"] - late)])

    @rule()
    def worker_dies(self) -> None:
        with self.world.db.transaction() as session:
            presence.become(session, self.worker, "ended")
            transitions.rescue(session, self.worker)
        self.worker = self.world.worker()

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        with self.world.db.transaction() as session:
            transitions.cancel(session, self.tenant, self.jobs[number])

    @rule(number=numbers)
    def expire(self, number: int) -> None:
        with self.world.db.transaction() as session:
            session.execute(
                text("UPDATE jobs SET deadline = now() WHERE id = :id AND finished_at IS NULL"),
                {"id": self.jobs[number]},
            )
            transitions.expire(session)

    @rule()
    def fold(self) -> None:
        with self.world.db.transaction() as session:
            tallies.fold(session)
            ends.finalize(session)
            self.ender.step(session)

    @invariant()
    def rows_move_along_arrows_and_counts_only_grow(self) -> None:
        with self.world.db.transaction() as session:
            rows = {row["id"]: dict(row) for row in session.execute(_ROWS, {"ids": self.jobs}).mappings()}
        for job, row in rows.items():
            was = self.before.get(job, row)
            assert row["fence"] >= was["fence"]
            if was["state"] in TERMINAL:
                assert row == was, "what has ended does not change"
            assert row["crashes"] <= MAX_CRASHES
        self.before = rows
        with self.world.db.transaction() as session:
            batch = dict(session.execute(_FOLDED, {"id": self.batch}).mappings().one())
        ended = Counter(row["state"] for row in rows.values() if row["state"] in TERMINAL)
        for state in TERMINAL:
            assert self.counted[state] <= batch[state] <= ended[state]
            self.counted[state] = batch[state]
        if batch["status"] in ("completed", "expired", "cancelled"):
            assert sum(self.counted.values()) == batch["total"]


@pytest.mark.parametrize("histories", [pytest.param(12), pytest.param(400, marks=pytest.mark.long)])
def test_row_32_no_history_breaks_the_rules(world: World, histories: int) -> None:
    JobMachine.world = world
    run_state_machine_as_test(
        JobMachine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=30,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
