"""Results while a batch runs: nothing is passed over, nothing comes twice, in either order."""

from __future__ import annotations

import json
import threading
import uuid
from typing import Any

import pytest
from sqlalchemy import text

from registry import transitions
from registry.batches import results
from registry.batches.results import Place
from registry.db import Database
from registry.errors import InvalidField
from tests.registry.batches.batch_rig import Batches, parsed, succeeded


def read(
    batches: Batches, batch_id: uuid.UUID, order: Any, after: str | None = None, limit: int | None = None
) -> list[Any]:
    return parsed(b"".join(results.stream(batches.db, "acme", batch_id, Place.of(order, after), limit)))


def lines(found: list[Any]) -> list[int]:
    return [line["line"] for line in found]


def test_a_line_is_the_job_as_it_is_shown_with_its_number_and_a_cursor(batches: Batches) -> None:
    batch_id = batches.make(1)
    batches.run(batch_id, succeed=[1])
    [line] = read(batches, batch_id, "input")
    assert (line["object"], line["status"], line["custom_id"], line["line"]) == ("job", "succeeded", "line-1", 1)
    assert line["output"]["text"].startswith("Summary 1")
    assert line["timing"]["decode_ms"] == 4.0


def test_input_order_stops_at_the_first_line_that_has_not_ended_and_goes_on_from_there(batches: Batches) -> None:
    batch_id = batches.make(6, bad=[2], on_bad_line="skip")
    batches.run(batch_id, succeed=[1, 3, 5], fail=[6])
    first = read(batches, batch_id, "input")
    assert lines(first) == [1, 2, 3]
    assert (first[1]["object"], first[1]["error"]["code"]) == ("refused_line", "invalid_json_line")
    assert read(batches, batch_id, "input", first[-1]["cursor"]) == []
    batches.run(batch_id, succeed=[4])
    assert lines(read(batches, batch_id, "input", first[-1]["cursor"])) == [4, 5, 6]


def test_order_of_completion_shows_refused_lines_and_then_each_as_it_ended(batches: Batches) -> None:
    batch_id = batches.make(6, bad=[3], on_bad_line="skip")
    batches.run(batch_id, succeed=[5])
    batches.run(batch_id, succeed=[2, 1])
    first = read(batches, batch_id, "completion")
    assert lines(first) == [3, 5, 1, 2]
    batches.run(batch_id, fail=[6])
    assert lines(read(batches, batch_id, "completion", first[-1]["cursor"])) == [6]
    assert lines(read(batches, batch_id, "completion", first[1]["cursor"])) == [1, 2, 6]


def test_a_line_stamped_earlier_and_committed_later_is_not_passed_over(batches: Batches) -> None:
    batch_id = batches.make(2)
    claimed = {job.job_id: job for job in batches.world.claim(batches.world.worker(), batches.world.pick())}
    jobs = batches.jobs(batch_id)
    with batches.db.transaction() as slow:
        transitions.settle(slow, [succeeded(jobs[1], claimed[jobs[1]].fence, "slow")])
        with batches.db.transaction() as quick:
            transitions.settle(quick, [succeeded(jobs[2], claimed[jobs[2]].fence, "quick")])
        assert read(batches, batch_id, "completion") == []
    assert lines(read(batches, batch_id, "completion")) == [1, 2]


@pytest.mark.parametrize("order", ["input", "completion"])
@pytest.mark.parametrize("page", [1, 3, 256])
def test_pages_and_limits_join_without_gap_or_repetition(
    batches: Batches, monkeypatch: pytest.MonkeyPatch, order: str, page: int
) -> None:
    monkeypatch.setattr(results, "PAGE_LINES", page)
    batch_id = batches.make(10, bad=[1, 6], on_bad_line="skip")
    batches.run(batch_id, succeed=[9, 10])
    batches.run(batch_id, succeed=[2, 3, 4, 5, 7, 8])
    whole = read(batches, batch_id, order)
    assert sorted(lines(whole)) == list(range(1, 11))
    joined: list[Any] = []
    while part := read(batches, batch_id, order, joined[-1]["cursor"] if joined else None, 4):
        assert len(part) <= 4
        joined += part
    assert joined == whole


def test_a_reader_beside_the_writers_gets_every_line_once(batches: Batches) -> None:
    """Sixty settles by four writers, whose commits overlap; a reader resumes again and again."""
    batch_id = batches.make(60)
    claimed = batches.world.claim(batches.world.worker(capacity=100), batches.world.pick(100))
    shares = [claimed[start::4] for start in range(4)]

    def write(share: list[transitions.Claimed]) -> None:
        for job in share:
            with batches.db.transaction() as session:
                transitions.settle(session, [succeeded(job.job_id, job.fence, "x")])
                session.execute(text("SELECT pg_sleep(random() * 0.02)"))

    writers = [threading.Thread(target=write, args=(share,)) for share in shares]
    for writer in writers:
        writer.start()
    seen: list[Any] = []
    while any(writer.is_alive() for writer in writers):
        seen += read(batches, batch_id, "completion", seen[-1]["cursor"] if seen else None)
    for writer in writers:
        writer.join()
    seen += read(batches, batch_id, "completion", seen[-1]["cursor"] if seen else None)
    assert sorted(lines(seen)) == list(range(1, 61))


@pytest.mark.parametrize(
    ("order", "cursor"),
    [
        ("input", "c1.2"),
        ("completion", "i3"),
        ("input", "3"),
        ("input", "i-1"),
        ("completion", f"c{10**19}.1"),
        ("input", ""),
    ],
)
def test_a_cursor_of_another_order_or_make_is_refused(order: Any, cursor: str) -> None:
    with pytest.raises(InvalidField) as caught:
        Place.of(order, cursor)
    assert caught.value.param == "after"


def test_another_tenant_reads_nothing(batches: Batches, api_db: Database) -> None:
    batch_id = batches.make(2, bad=[2], on_bad_line="skip")
    batches.run(batch_id, succeed=[1])
    batches.world.tenant("globex")
    for order in ("input", "completion"):
        for tenant, expected in (("globex", 0), ("acme", 2)):
            sent = b"".join(results.stream(api_db, tenant, batch_id, Place(order), None))
            assert len([json.loads(line) for line in sent.splitlines()]) == expected
