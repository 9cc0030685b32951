"""A cancel meets everything else at the same moment: one end, counts that add up, finished lines kept."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from registry import tallies, transitions
from registry.batches import ends
from registry.batches.views import BatchView
from registry.db import Database
from registry.models.batches import BATCH_ENDS
from registry.transitions import Claimed
from tests.registry.batches.batch_rig import RETENTION, Batches, succeeded

Act = Callable[[], object]


def at_once(*acts: Act) -> list[object]:
    """Run these at the same moment; what each gave."""
    barrier = threading.Barrier(len(acts))
    found: list[object] = [None] * len(acts)

    def run(number: int, act: Act) -> None:
        barrier.wait(timeout=10)
        try:
            found[number] = act()
        except Exception as error:  # noqa: BLE001
            found[number] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert [item for item in found if isinstance(item, Exception)] == []
    return found


class Rivals:
    """What may happen to a batch while its tenant cancels it."""

    def __init__(self, batches: Batches, api_db: Database, batch_id: uuid.UUID) -> None:
        self.batches, self.api_db, self.batch_id = batches, api_db, batch_id

    def cancel(self) -> bool:
        with self.api_db.transaction("acme") as session:
            return ends.request_cancel(session, "acme", self.batch_id)

    def cancel_line(self) -> None:
        jobs = self.batches.jobs(self.batch_id)
        with self.api_db.transaction("acme") as session:
            transitions.cancel(session, "acme", jobs[1])

    def dispatch(self) -> None:
        for step in (transitions.cancel_lines, tallies.fold, ends.finalize):
            with self.batches.db.transaction() as session:
                step(session)
        with self.batches.db.transaction() as session:
            ends.Ender(RETENTION).step(session)

    def expire(self) -> None:
        with self.batches.db.transaction() as session:
            transitions.expire(session)

    def settle(self, claimed: list[Claimed]) -> Any:
        with self.batches.db.transaction() as session:
            return transitions.settle(session, [succeeded(job.job_id, job.fence, "x") for job in claimed])

    def pick(self) -> None:
        self.batches.world.pick()


def brought_to_an_end(batches: Batches, batch_id: uuid.UUID) -> BatchView:
    """The dispatcher goes on; what the batch came to is whole."""
    while batches.dispatch():
        pass
    view = batches.view(batch_id)
    if view.status not in BATCH_ENDS:
        batches.run(batch_id, succeed=range(1, 4))
        batches.dispatch()
        view = batches.view(batch_id)
    counts = view.request_counts
    assert counts.completed + counts.failed == counts.total
    assert [name for name in BATCH_ENDS if getattr(view, f"{name}_at") is not None] == [view.status]
    lines = [line["lorry"]["line"] for line in batches.output(batch_id) + batches.errors(batch_id)]
    assert sorted(lines) == list(range(1, counts.total + 1))
    assert len(batches.output(batch_id)) == counts.completed
    return view


def before_dispatch(batches: Batches, api_db: Database) -> None:
    rivals = Rivals(batches, api_db, batches.make(3))
    asked, *_ = at_once(rivals.cancel, rivals.pick, rivals.dispatch)
    assert asked is True
    assert brought_to_an_end(batches, rivals.batch_id).status == "cancelled"


def while_running(batches: Batches, api_db: Database) -> None:
    rivals = Rivals(batches, api_db, batches.make(3))
    claimed = batches.world.claim(batches.world.worker(), batches.world.pick())
    asked, settled, *_ = at_once(rivals.cancel, lambda: rivals.settle(claimed[:2]), rivals.dispatch, rivals.cancel_line)
    view = brought_to_an_end(batches, rivals.batch_id)
    assert asked is True
    assert view.status == "cancelled"
    assert view.request_counts.completed == len(settled)  # type: ignore[arg-type]


def while_finalizing(batches: Batches, api_db: Database) -> None:
    batch_id = batches.make(1)
    batches.run(batch_id, succeed=[1])
    with batches.db.transaction() as session:
        tallies.fold(session)
    rivals = Rivals(batches, api_db, batch_id)
    asked, *_ = at_once(rivals.cancel, rivals.dispatch)
    view = brought_to_an_end(batches, batch_id)
    assert view.status == ("cancelled" if asked else "completed")
    assert view.request_counts.completed == 1


def twice(batches: Batches, api_db: Database) -> None:
    rivals = Rivals(batches, api_db, batches.make(2))
    asked = at_once(rivals.cancel, rivals.cancel, rivals.dispatch)
    assert sorted(asked[:2]) == [False, True]  # type: ignore[type-var]
    assert brought_to_an_end(batches, rivals.batch_id).status == "cancelled"


def after_the_end(batches: Batches, api_db: Database) -> None:
    batch_id = batches.make(1)
    batches.run(batch_id, succeed=[1])
    before = brought_to_an_end(batches, batch_id)
    rivals = Rivals(batches, api_db, batch_id)
    assert at_once(rivals.cancel, rivals.cancel) == [False, False]
    assert batches.view(batch_id) == before


def against_the_window(batches: Batches, api_db: Database) -> None:
    rivals = Rivals(batches, api_db, batches.make(3))
    with batches.db.transaction() as session:
        session.execute(text("UPDATE jobs SET deadline = now() WHERE batch_id = :id"), {"id": rivals.batch_id})
    asked, *_ = at_once(rivals.cancel, rivals.expire, rivals.dispatch)
    view = brought_to_an_end(batches, rivals.batch_id)
    assert view.status == ("cancelled" if asked else "expired")


SCENES = [before_dispatch, while_running, while_finalizing, twice, after_the_end, against_the_window]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_cancelled_batch_has_one_end(
    batches: Batches, api_db: Database, scene: Callable[[Batches, Database], None]
) -> None:
    for _ in range(8):
        scene(batches, api_db)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_cancelled_batch_has_one_end_a_thousand_times(
    batches: Batches, api_db: Database, scene: Callable[[Batches, Database], None]
) -> None:
    for _ in range(1000 // len(SCENES) + 1):
        scene(batches, api_db)
