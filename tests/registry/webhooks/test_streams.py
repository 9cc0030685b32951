"""A batch's finished lines in chunks: every line once, numbered without a gap, the last one marked."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from registry.webhooks import outbox, payloads, streams
from registry.webhooks.streams import MAX_BYTES, MAX_LINES, _Ready, grouped
from tests.hooks import Hooks


def cut(hooks: Hooks) -> int:
    """A pass from the start; how many chunks it made."""
    before = len(chunks(hooks))
    with hooks.db.transaction() as session:
        streams.cut(session, streams.START)
    return len(chunks(hooks)) - before


def chunks(hooks: Hooks) -> list[tuple[int | None, list[int] | None, bool]]:
    return [(row.chunk_no, row.lines, row.is_last) for row in hooks.deliveries() if row.type == "batch.results"]


def bodies(hooks: Hooks) -> list[dict[str, Any]]:
    """The data of every chunk, as sent."""
    found = []
    with hooks.db.transaction() as session:
        while picked := outbox.pick(session, 100):
            for delivery in picked:
                claimed = outbox.claim(session, delivery)
                assert claimed is not None
                message = payloads.build(session, hooks.box, claimed)
                assert message is not None
                assert len(message.body) <= 1_000_000
                found.append(json.loads(message.body)["data"])
                session.execute(
                    text("UPDATE webhook_deliveries SET state = 'delivered', delivered_at = now() WHERE id = :id"),
                    {"id": delivery},
                )
    return found


@pytest.fixture
def results(hooks: Hooks) -> Hooks:
    hooks.endpoint(events=(), deliver="results")
    return hooks


def test_old_streams_that_never_end_keep_no_new_one_waiting(results: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAMS_A_PASS", 1)
    made = [results.batch(MAX_LINES + 1) for _ in range(3)]
    for _, jobs in made:
        results.run(jobs[:MAX_LINES])
    place, cut_of = streams.START, []
    for _ in made:
        with results.db.transaction() as session:
            place = streams.cut(session, place)
        cut_of.append(place[0])
    assert cut_of == sorted(batch for batch, _ in made)
    with results.db.transaction() as session:
        assert streams.cut(session, place) == streams.START, "and again from the first"
    assert len(chunks(results)) == 3


def test_lines_are_cut_in_the_order_of_their_ends_and_the_last_chunk_has_the_totals(results: Hooks) -> None:
    batch, jobs = results.batch(5)
    results.run([jobs[4]])
    results.run([jobs[1]])
    assert cut(results) == 1
    results.run([jobs[0], jobs[2], jobs[3]])
    results.end_batch(batch)
    assert cut(results) == 1
    first, last = sorted(bodies(results), key=lambda chunk: chunk["chunk"])  # they may be sent in any order
    assert ([line["line"] for line in first["lines"]], first["chunk"], first["last"]) == ([5, 2], 1, False)
    assert ({line["line"] for line in last["lines"]}, last["chunk"], last["last"]) == ({1, 3, 4}, 2, True)
    assert (last["chunks"], last["request_counts"]["completed"]) == (2, 5)
    assert first["lines"][0]["output"]["text"] == "A short answer."
    assert first["lines"][0]["object"] == "job"


def test_a_chunk_that_is_not_full_waits_for_company_for_seconds(results: Hooks) -> None:
    _, jobs = results.batch(3)
    results.run(jobs[:2])
    results.sql("UPDATE jobs SET finished_at = now() - interval '2 s' WHERE finished_at IS NOT NULL")
    assert cut(results) == 0
    results.sql("UPDATE jobs SET finished_at = now() - interval '4 s' WHERE finished_at IS NOT NULL")
    assert cut(results) == 1


def test_a_full_chunk_does_not_wait(results: Hooks) -> None:
    _, jobs = results.batch(MAX_LINES + 1)
    results.run(jobs)
    results.sql("UPDATE jobs SET finished_at = now() - interval '2 s' WHERE finished_at IS NOT NULL")
    assert cut(results) == 1
    assert [len(lines or ()) for _, lines, _ in chunks(results)] == [MAX_LINES]


def test_what_ended_a_moment_ago_is_left_for_the_next_look(results: Hooks) -> None:
    _, jobs = results.batch(MAX_LINES)
    results.run(jobs)
    results.sql("UPDATE jobs SET finished_at = clock_timestamp() WHERE finished_at IS NOT NULL")
    assert cut(results) == 0


def test_a_line_that_was_overtaken_is_in_the_last_chunk(results: Hooks) -> None:
    """A slow transaction commits an end that is older than what has been cut: the end of the batch finds it."""
    batch, jobs = results.batch(3)
    results.run(jobs[1:])
    cut(results)
    results.run(jobs[:1])
    results.sql("UPDATE jobs SET finished_at = finished_at - interval '1 h' WHERE line_no = 1")
    results.end_batch(batch)
    cut(results)
    assert chunks(results) == [(1, [2, 3], False), (2, [1], True)]


def test_a_batch_whose_lines_are_all_cut_ends_with_an_empty_chunk(results: Hooks) -> None:
    batch, jobs = results.batch(2)
    results.run(jobs)
    cut(results)
    results.end_batch(batch)
    cut(results)
    cut(results)
    assert chunks(results) == [(1, [1, 2], False), (2, [], True)]


def test_many_lines_that_end_at_once_are_cut_over_several_looks_without_loss(
    results: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_LINES_A_PASS", 120)
    batch, jobs = results.batch(301)
    results.run(jobs)
    results.end_batch(batch)
    while cut(results):
        pass
    found = chunks(results)
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    assert sorted(line for _, lines, _ in found for line in lines or ()) == list(range(1, 302))
    assert [is_last for _, _, is_last in found] == [False] * (len(found) - 1) + [True]


def test_an_endpoint_for_events_gets_no_chunks(hooks: Hooks) -> None:
    hooks.endpoint()
    batch, jobs = hooks.batch(1)
    hooks.run(jobs)
    hooks.end_batch(batch)
    assert cut(hooks) == 0


def test_large_outputs_make_small_chunks(results: Hooks) -> None:
    batch, jobs = results.batch(6)
    results.run(jobs, answer='"\n\x01' * 100_000)
    results.end_batch(batch)
    cut(results)
    assert sorted(line["line"] for body in bodies(results) for line in body["lines"]) == [1, 2, 3, 4, 5, 6]
    assert len(chunks(results)) == 6


def test_a_line_beyond_all_measure_has_a_link_instead_of_its_text(results: Hooks) -> None:
    batch, jobs = results.batch(1)
    results.run(jobs, answer="x" * 1_200_000)
    results.end_batch(batch)
    cut(results)
    (line,) = bodies(results)[0]["lines"]
    assert line["output"] is None
    assert line["links"] == {"self": f"/v1/jobs/{line['id']}"}


@pytest.mark.parametrize("sizes", [[1] * 250, [MAX_BYTES] * 3, [MAX_BYTES * 2, 1], [MAX_BYTES // 2] * 5, []])
def test_groups_keep_the_order_and_both_limits(sizes: list[int]) -> None:
    lines = [_Ready(number, datetime.now(UTC), size, True) for number, size in enumerate(sizes)]
    groups = list(grouped(lines))
    assert [line for group in groups for line in group] == lines
    for group in groups:
        assert len(group) <= MAX_LINES
        assert len(group) == 1 or sum(line.bytes for line in group) <= MAX_BYTES
