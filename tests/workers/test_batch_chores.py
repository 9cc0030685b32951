"""What the dispatcher does for batches on its timer, with its own connection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from registry.batches import ends
from registry.db import Database
from tests.registry.batches.batch_rig import Batches
from tests.world import World
from workers import repair
from workers.leader import Leader


@pytest.fixture
def leader(system_db: Database) -> Iterator[Leader]:
    made = Leader(system_db.engine)
    assert made.try_to_lead()
    yield made
    made.resign()


@pytest.fixture
def batches(world: World) -> Batches:
    return Batches(world)


def test_a_batch_goes_from_its_last_line_to_its_files_in_one_round(batches: Batches, leader: Leader) -> None:
    batch_id = batches.make(2)
    batches.run(batch_id, succeed=[1], fail=[2])
    repair.fold(leader)
    assert batches.view(batch_id).status == "finalizing"
    repair.EndBatches(30).look(leader)
    view = batches.view(batch_id)
    assert view.status == "completed"
    assert None not in (view.output_file_id, view.error_file_id)


def test_a_cancelled_batch_is_ended_however_many_lines_it_has(batches: Batches, leader: Leader) -> None:
    batch_id = batches.make(6000)
    batches.cancel(batch_id)
    for _ in range(2):  # on a slow machine one look ends one chunk
        repair.cancel_lines(leader)
    repair.fold(leader)
    end_batches = repair.EndBatches(30)
    for _ in range(6000 // ends.CHUNK + 1):
        end_batches.look(leader)
    view = batches.view(batch_id)
    assert (view.status, view.lorry.counts.cancelled) == ("cancelled", 6000)


def test_a_passed_window_expires_more_lines_than_one_statement_takes(batches: Batches, leader: Leader) -> None:
    batch_id = batches.make(1500)
    with batches.db.transaction() as session:
        session.execute(text("UPDATE jobs SET deadline = now()"))
    for _ in range(10):
        repair.expire(leader)
    repair.fold(leader)
    assert batches.view(batch_id).lorry.counts.expired == 1500


def test_old_files_leave_the_disk_with_their_rows(batches: Batches, leader: Leader, tmp_path: Path) -> None:
    batches.world.tenant()
    path = tmp_path / "in"
    path.write_bytes(b"{}\n")
    with batches.db.transaction() as session:
        session.execute(
            text("""INSERT INTO files (id, tenant_id, purpose, filename, bytes, path, expires_at)
                    VALUES (uuidv7(), 'acme', 'batch', 'in', 3, :path, now() - interval '1 s')"""),
            {"path": str(path)},
        )
    repair.forget(leader, 30)
    assert not path.exists()


def test_a_step_is_repeated_until_nothing_is_left_or_the_time_is_over() -> None:
    left = [True, True, False, True]
    repair.repeated(lambda: left.pop(0))
    assert left == [True]
    calls: list[int] = []

    def more_is_left() -> bool:
        calls.append(1)
        return True

    repair.repeated(more_is_left, for_s=0.0)
    assert calls == [1]
