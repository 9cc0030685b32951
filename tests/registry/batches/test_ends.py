"""How a batch ends: every line counted, one end, its files."""

from __future__ import annotations

import uuid

import pytest
from sqlalchemy import text

from registry import tallies, transitions
from registry.batches import ends, outputs
from registry.models import Batch, File
from registry.models.batches import BATCH_ENDS
from tests.registry.batches.batch_rig import RETENTION, Batches


def file_of(batches: Batches, wire_id: str | None) -> File:
    assert wire_id is not None
    with batches.db.transaction() as session:
        found = session.get(File, uuid.UUID(wire_id.removeprefix("file-")))
        assert found is not None
        return found


def ended(batches: Batches, batch_id: uuid.UUID) -> tuple[str, int, int, int]:
    """Status and counts, which add up; exactly one end has a time."""
    view = batches.view(batch_id)
    assert view.request_counts.completed + view.request_counts.failed == view.request_counts.total
    times = {name: getattr(view, f"{name}_at") for name in BATCH_ENDS}
    assert [name for name, moment in times.items() if moment is not None] == [view.status]
    return view.status, view.request_counts.total, view.request_counts.completed, view.request_counts.failed


def test_a_batch_is_completed_with_an_output_file_once_every_line_succeeded(batches: Batches) -> None:
    batch_id = batches.make(3)
    batches.run(batch_id, succeed=[1, 2])
    assert batches.dispatch() == []
    assert batches.view(batch_id).request_counts.completed == 2
    batches.run(batch_id, succeed=[3])
    assert batches.dispatch() == ["completed"]
    view = batches.view(batch_id)
    assert ended(batches, batch_id) == ("completed", 3, 3, 0)
    assert view.finalizing_at is not None
    assert view.error_file_id is None
    assert (view.usage.input_tokens, view.usage.output_tokens, view.usage.total_tokens) == (33, 15, 48)
    file = file_of(batches, view.output_file_id)
    content = b"".join(outputs.stream_output(batches.db, "acme", batch_id, view.endpoint))
    assert (file.content, file.purpose, file.bytes) == ("output", "batch_output", len(content))


def test_a_batch_whose_lines_all_failed_is_completed_without_an_output_file(batches: Batches) -> None:
    batch_id = batches.make(2)
    batches.run(batch_id, fail=[1, 2])
    assert batches.dispatch() == ["completed"]
    view = batches.view(batch_id)
    assert ended(batches, batch_id) == ("completed", 2, 0, 2)
    assert view.output_file_id is None
    file = file_of(batches, view.error_file_id)
    content = b"".join(outputs.stream_errors(batches.db, "acme", batch_id, view.endpoint))
    assert (file.content, file.bytes) == ("error", len(content))


def test_refused_lines_count_as_failed_from_the_first(batches: Batches) -> None:
    batch_id = batches.make(4, bad=[2, 3], on_bad_line="skip")
    assert batches.view(batch_id).request_counts.failed == 2
    batches.run(batch_id, succeed=[1, 4])
    assert batches.dispatch() == ["completed"]
    assert ended(batches, batch_id) == ("completed", 4, 2, 2)


def test_a_batch_of_refused_lines_only_ends_too(batches: Batches) -> None:
    batch_id = batches.make(2, bad=[1, 2], on_bad_line="skip")
    assert batches.dispatch() == ["completed"]
    assert ended(batches, batch_id) == ("completed", 2, 0, 2)


def test_a_batch_expires_when_its_window_passes_with_lines_left(batches: Batches) -> None:
    batch_id = batches.make(3)
    batches.run(batch_id, succeed=[1])
    batches.window_passes(batch_id)
    assert batches.dispatch() == ["expired"]
    assert ended(batches, batch_id) == ("expired", 3, 1, 2)
    assert [line["lorry"]["line"] for line in batches.output(batch_id)] == [1]
    assert [line["error"]["code"] for line in batches.errors(batch_id)] == ["batch_expired"] * 2


def test_a_cancelled_batch_keeps_what_was_finished(batches: Batches) -> None:
    batch_id = batches.make(3)
    batches.run(batch_id, succeed=[2], fail=[3])
    assert batches.cancel(batch_id) is True
    assert batches.dispatch() == ["cancelled"]
    assert ended(batches, batch_id) == ("cancelled", 3, 1, 2)
    assert [line["lorry"]["line"] for line in batches.output(batch_id)] == [2]
    codes = [(line["lorry"]["line"], (line["error"] or {}).get("code")) for line in batches.errors(batch_id)]
    assert codes == [(1, "batch_cancelled"), (3, None)]


def test_cancelling_asks_once_and_only_for_ones_own(batches: Batches) -> None:
    batch_id = batches.make(1)
    assert batches.cancel(batch_id, "globex") is False
    assert [batches.cancel(batch_id) for _ in range(2)] == [True, False]
    assert batches.dispatch() == ["cancelled"]
    assert batches.cancel(batch_id) is False


def test_a_batch_whose_adapter_is_gone_counts_its_lines_as_failed(batches: Batches) -> None:
    adapter = batches.world.adapter()
    batch_id = batches.make(3, adapter=adapter)
    with batches.db.transaction() as session:
        transitions.fail_unavailable(session, "acme", adapter.adapter_id)
    assert batches.dispatch() == ["completed"]
    assert ended(batches, batch_id) == ("completed", 3, 0, 3)
    errors = [line["response"] for line in batches.errors(batch_id)]
    assert {(error["status_code"], error["body"]["error"]["code"]) for error in errors} == {
        (409, "adapter_unavailable")
    }


def test_a_line_given_up_after_its_workers_deaths_is_counted(batches: Batches) -> None:
    batch_id = batches.make(1)
    with batches.db.transaction() as session:
        session.execute(text("UPDATE jobs SET crashes = 2"))
    worker = batches.world.worker()
    claimed = batches.world.claim(worker, batches.world.pick())
    with batches.db.transaction() as session:
        transitions.start(session, [(job.job_id, job.fence) for job in claimed])
        transitions.rescue(session, worker)
    assert batches.dispatch() == ["completed"]
    assert ended(batches, batch_id) == ("completed", 1, 0, 1)


def test_a_line_cancelled_alone_ends_its_batch_as_completed(batches: Batches) -> None:
    batch_id = batches.make(1)
    with batches.db.transaction() as session:
        transitions.cancel(session, "acme", batches.jobs(batch_id)[1])
    assert batches.dispatch() == ["completed"]
    assert ended(batches, batch_id) == ("completed", 1, 0, 1)


def test_files_go_with_their_batch_or_sooner_if_the_tenant_said_so(batches: Batches) -> None:
    kept, short = batches.make(1), batches.make(1, output_expires_after_s=3600)
    batches.run(kept, succeed=[1])
    batches.run(short, succeed=[1])
    assert batches.dispatch() == ["completed", "completed"]
    with batches.db.transaction() as session:
        lives = {
            batch_id: file_of(batches, batches.view(batch_id).output_file_id).expires_at for batch_id in (kept, short)
        }
        rows = {batch_id: session.get_one(Batch, batch_id) for batch_id in (kept, short)}
    assert lives[kept] == rows[kept].created_at + RETENTION
    left = lives[short] - rows[short].completed_at  # type: ignore[operator]
    assert abs(left.total_seconds() - 3600) < 5


def test_a_fold_that_is_rolled_back_counts_nothing(batches: Batches) -> None:
    batch_id = batches.make(1)
    batches.run(batch_id, succeed=[1])
    with batches.db.transaction() as session:
        tallies.fold(session)
        session.rollback()
    assert batches.view(batch_id).request_counts.completed == 0
    assert batches.dispatch() == ["completed"]
    assert batches.view(batch_id).request_counts.completed == 1


def test_files_are_measured_in_steps_and_whole(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "CHUNK", 2)
    batch_id = batches.make(7, bad=[7], on_bad_line="skip")
    batches.run(batch_id, succeed=[1, 2, 3, 4], fail=[5, 6])
    with batches.db.transaction() as session:
        tallies.fold(session)
        ends.finalize(session)
    ender, steps = ends.Ender(RETENTION), 0
    while batches.view(batch_id).status != "completed":
        steps += 1
        with batches.db.transaction() as session:
            assert ender.step(session) is True
    assert steps > 3
    view = batches.view(batch_id)
    for wire_id, stream in ((view.output_file_id, outputs.stream_output), (view.error_file_id, outputs.stream_errors)):
        content = b"".join(stream(batches.db, "acme", batch_id, view.endpoint))
        assert file_of(batches, wire_id).bytes == len(content)


def test_a_small_batch_does_not_wait_for_a_large_one(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "CHUNK", 2)
    large, small = batches.make(9), batches.make(1)
    batches.run(large, succeed=range(1, 10))
    with batches.db.transaction() as session:
        tallies.fold(session)
        ends.finalize(session)
    ender = ends.Ender(RETENTION)
    with batches.db.transaction() as session:
        ender.step(session)
    batches.run(small, succeed=[1])
    with batches.db.transaction() as session:
        tallies.fold(session)
        ends.finalize(session)
        ender.step(session)
    assert [batches.view(batch_id).status for batch_id in (large, small)] == ["finalizing", "completed"]
