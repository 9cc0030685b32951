"""Any order of events: no forbidden move, counts that only grow and add up at every step, one end for every batch."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import text

from registry import tallies, transitions
from registry.batches import ends
from registry.models import Adapter
from registry.models.batches import BATCH_ARROWS, BATCH_ENDS
from registry.transitions import Claimed
from tests.registry.batches.batch_rig import RETENTION, Batches, failed, succeeded

MOST_BATCHES = 4
ROWS = text("SELECT state, count(*) AS n FROM jobs WHERE batch_id = :id GROUP BY state")
UNFOLDED = text("""
SELECT coalesce(sum(succeeded), 0) AS succeeded, coalesce(sum(failed), 0) AS failed,
       coalesce(sum(cancelled), 0) AS cancelled, coalesce(sum(expired), 0) AS expired
FROM tallies WHERE batch_id = :id
""")
COUNTS = ("succeeded", "failed", "cancelled", "expired")


def reachable(source: str) -> set[str]:
    """Where a batch may be seen next: several arrows may lie between two looks."""
    found = {source}
    for target in BATCH_ARROWS[source]:
        found |= reachable(target)
    return found


class BatchMachine(RuleBasedStateMachine):
    """Tenants, the dispatcher's steps and workers in any order. One transaction a step, as in life."""

    batches: Batches
    adapter: Adapter

    def __init__(self) -> None:
        super().__init__()
        self.made: list[uuid.UUID] = []
        self.bad: dict[uuid.UUID, int] = {}
        self.last: dict[uuid.UUID, Any] = {}
        self.worker = self.batches.world.worker(capacity=100)
        self.held: list[Claimed] = []
        self.late: list[Claimed] = []
        self.ender = ends.Ender(RETENTION)

    @rule(lines=st.integers(1, 4), bad=st.integers(0, 2), adapted=st.booleans())
    def create(self, lines: int, bad: int, adapted: bool) -> None:
        if len(self.made) < MOST_BATCHES:
            refused = list(range(1, min(bad, lines) + 1))
            batch_id = self.batches.make(lines, bad=refused, adapter=self.adapter if adapted else None)
            self.made.append(batch_id)
            self.bad[batch_id] = len(refused)

    @rule(number=st.integers(0, MOST_BATCHES - 1))
    def cancel(self, number: int) -> None:
        if number < len(self.made):
            before = self.batches.view(self.made[number]).status
            assert self.batches.cancel(self.made[number]) == (before == "in_progress")

    @rule(number=st.integers(0, MOST_BATCHES - 1), line=st.integers(1, 4))
    def cancel_one_line(self, number: int, line: int) -> None:
        jobs = self.batches.jobs(self.made[number]) if number < len(self.made) else {}
        if line in jobs:
            self.act(transitions.cancel, "acme", jobs[line])

    @rule(number=st.integers(0, MOST_BATCHES - 1))
    def window_passes(self, number: int) -> None:
        if number < len(self.made):
            self.batches.window_passes(self.made[number])

    @rule(wanted=st.integers(1, 8))
    def claim(self, wanted: int) -> None:
        self.held += self.batches.world.claim(self.worker, self.batches.world.pick(wanted))

    @rule(well=st.booleans(), late=st.booleans())
    def finish(self, well: bool, late: bool) -> None:
        """A worker settles; `late`: one that was declared dead tries to, with its old fence."""
        source = self.late if late else self.held
        if source:
            job = source.pop()
            outcome = succeeded(job.job_id, job.fence, "x") if well else failed(job.job_id, job.fence)
            self.act(transitions.settle, [outcome])

    @rule()
    def start_all(self) -> None:
        self.act(transitions.start, [(job.job_id, job.fence) for job in self.held])

    @rule()
    def hand_back(self) -> None:
        self.act(transitions.hand_back, [(job.job_id, job.fence) for job in self.held])
        self.held.clear()

    @rule()
    def crash(self) -> None:
        self.act(transitions.rescue, self.worker)
        self.late, self.held = self.held, []
        self.worker = self.batches.world.worker(capacity=100)

    @rule()
    def the_dispatcher_starts_anew(self) -> None:
        self.ender = ends.Ender(RETENTION)

    @rule()
    def adapter_goes(self) -> None:
        self.act(transitions.fail_unavailable, "acme", self.adapter.adapter_id)

    @rule()
    def cancel_lines(self) -> None:
        self.act(transitions.cancel_lines)

    @rule()
    def fold(self) -> None:
        self.act(tallies.fold)

    @rule()
    def finalize(self) -> None:
        self.act(ends.finalize)

    @rule()
    def end_a_batch(self) -> None:
        self.act(self.ender.step)

    def act(self, step: Any, *values: Any) -> None:
        with self.batches.db.transaction() as session:
            step(session, *values)

    @invariant()
    def views_are_sound(self) -> None:
        for batch_id in self.made:
            view = self.batches.view(batch_id)
            counts, last = view.request_counts, self.last.get(batch_id, view)
            assert counts.completed + counts.failed <= counts.total
            assert view.status in reachable(last.status)
            assert counts.completed >= last.request_counts.completed
            assert counts.failed >= last.request_counts.failed
            at_end = [name for name in BATCH_ENDS if getattr(view, f"{name}_at") is not None]
            assert at_end == ([view.status] if view.status in BATCH_ENDS else [])
            if view.status in BATCH_ENDS:
                assert counts.completed + counts.failed == counts.total
                assert last.status != view.status or last == view
            self.last[batch_id] = view

    @invariant()
    def what_is_counted_and_what_is_still_to_be_folded_are_the_rows(self) -> None:
        with self.batches.db.transaction() as session:
            for batch_id in self.made:
                rows = Counter({row.state: row.n for row in session.execute(ROWS, {"id": batch_id})})
                unfolded = session.execute(UNFOLDED, {"id": batch_id}).one()
                folded = self.last[batch_id].lorry.counts if batch_id in self.last else None
                for name in COUNTS if folded else ():
                    refused = self.bad[batch_id] if name == "failed" else 0
                    assert rows[name] == getattr(folded, name) + getattr(unfolded, name) - refused, name

    def teardown(self) -> None:
        """Whatever happened, every batch ends, and every line is in one of its files once."""
        for batch_id in self.made:
            self.batches.cancel(batch_id)
        while self.batches.dispatch():
            pass
        self.views_are_sound()
        for batch_id in self.made:
            view = self.batches.view(batch_id)
            assert view.status in BATCH_ENDS
            lines = [line["lorry"]["line"] for line in self.batches.output(batch_id) + self.batches.errors(batch_id)]
            assert sorted(lines) == list(range(1, view.request_counts.total + 1))
            assert len(self.batches.output(batch_id)) == view.request_counts.completed


def explore(batches: Batches, examples: int, steps: int) -> None:
    BatchMachine.batches, BatchMachine.adapter = batches, batches.world.adapter()
    run_state_machine_as_test(
        BatchMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_order_of_events_breaks_a_batch(batches: Batches) -> None:
    explore(batches, examples=12, steps=30)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_order_of_ten_thousand_events_breaks_a_batch(batches: Batches) -> None:
    explore(batches, examples=200, steps=60)
