"""A job in parts: it waits for them, goes on with what they gave, or ends as one of them did; it is counted once."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from registry import explanations, jobs, quotas, tallies, transitions, usage
from registry.db import Database
from registry.errors import NotFound
from registry.shapes import job_view
from registry.transitions import Division, Outcome
from tests.world import World

SAMPLING = {"max_tokens": 9, "temperature": 0.0, "top_p": 1.0, "stop": [], "seed": None}
TIMING = {
    "queued_ms": 1.0,
    "held_ms": 1.0,
    "swap": None,
    "prefill_ms": 3.0,
    "decode_ms": 4.0,
    "running_batch": {"jobs": 1, "adapters": 0},
}
PIECES = ["첫 부분. ", "둘째 부분. ", "셋째 부분."]


class Story:
    """One divided job and what becomes of it."""

    def __init__(self, db: Database, world: World) -> None:
        self.db = db
        self.world = world
        self.job = world.job("acme", document="".join(PIECES))
        self.worker = world.worker()
        [claimed] = world.claim(self.worker, world.pick())
        assert self.divide(claimed.fence)

    def divide(self, fence: int) -> bool:
        with self.db.transaction() as session:
            return transitions.divide(session, Division(self.job, fence, PIECES, SAMPLING))

    def parts(self) -> list[dict[str, Any]]:
        with self.db.transaction() as session:
            rows = session.execute(text("SELECT * FROM jobs WHERE parent_id = :id ORDER BY part_no"), {"id": self.job})
            return [dict(row) for row in rows.mappings()]

    def settle(self, part: transitions.Claimed, **fields: Any) -> None:
        done = {"text": "요약", "finish_reason": "stop", "prompt_tokens": 10, "output_tokens": 2, "engine_ms": 5.0}
        done["timing"] = TIMING
        outcome = Outcome(part.job_id, part.fence, **{"state": "succeeded", **done, **fields})
        with self.db.transaction() as session:
            assert transitions.settle(session, [outcome]) == {part.job_id}

    def advance(self) -> None:
        for step in (transitions.end_with_parts, transitions.sweep, transitions.release):
            with self.db.transaction() as session:
                step(session)

    def texts(self) -> int:
        """Texts of any other job than ours."""
        with self.db.transaction() as session:
            counted = session.execute(
                text(
                    "SELECT (SELECT count(*) FROM job_inputs WHERE job_id <> :id) + (SELECT count(*) FROM job_outputs)"
                ),
                {"id": self.job},
            )
            return int(counted.scalar_one())


@pytest.fixture
def story(system_db: Database, world: World) -> Story:
    return Story(system_db, world)


def test_a_divided_job_waits_and_its_parts_have_its_place(story: Story) -> None:
    row = story.world.row(story.job)
    assert (row["state"], row["waits_for_parts"], row["worker"]) == ("queued", True, None)
    for part in story.parts():
        assert [part[name] for name in ("seq", "priority", "deadline", "adapter_id", "deployment", "tenant_id")] == [
            row[name] for name in ("seq", "priority", "deadline", "adapter_id", "deployment", "tenant_id")
        ]
        assert (part["notify"], part["batch_id"]) == (False, None)
    later = story.world.job("acme")
    sent = story.world.pick()
    assert set(sent[:3]) == {part["id"] for part in story.parts()}
    assert sent[3:] == [later]
    bodies = [claimed.body for claimed in story.world.claim(story.worker, sent[:3])]
    assert sorted(body["document"] for body in bodies if body) == sorted(PIECES)


def test_its_tenant_reads_what_it_waits_for(story: Story) -> None:
    with story.db.transaction() as session:
        view = job_view(jobs.get(session, "acme", story.job))
    assert (view.status, view.waiting_for) == ("queued", explanations.PARTS)


def test_a_worker_that_lost_the_job_divides_nothing(story: Story) -> None:
    assert not story.divide(1)
    assert len(story.parts()) == 3


def test_when_all_parts_have_succeeded_the_job_goes_on_with_their_texts(story: Story) -> None:
    claimed = story.world.claim(story.worker, story.world.pick())
    story.settle(claimed[0])
    story.settle(claimed[1])
    story.advance()
    assert story.world.pick() == []
    story.settle(claimed[2])
    story.advance()
    assert story.parts() == []
    assert story.texts() == 0
    [again] = story.world.claim(story.worker, story.world.pick())
    assert (again.job_id, again.fence) == (story.job, 2)
    assert again.body is not None
    assert (again.body["document"], again.body["reduced"]) == ("".join(PIECES), "요약\n\n요약\n\n요약")
    assert again.overflow is not None
    told = {name: again.overflow[name] for name in ("levels", "parts", "prompt_tokens", "output_tokens", "prefill_ms")}
    assert told == {"levels": 1, "parts": 3, "prompt_tokens": 30, "output_tokens": 6, "prefill_ms": 9.0}


def test_parts_are_joined_in_the_documents_order_whatever_order_they_ended_in(story: Story) -> None:
    number = {part["id"]: part["part_no"] for part in story.parts()}
    claimed = story.world.claim(story.worker, story.world.pick())
    for part in sorted(claimed, key=lambda claimed: -number[claimed.job_id]):
        story.settle(part, text=f"요약 {number[part.job_id]}")
    story.advance()
    [again] = story.world.claim(story.worker, story.world.pick())
    assert again.body is not None
    assert again.body["reduced"] == "요약 1\n\n요약 2\n\n요약 3"


def test_a_job_in_parts_is_billed_once_with_what_all_of_it_took(story: Story) -> None:
    for part in story.world.claim(story.worker, story.world.pick()):
        story.settle(part)
    story.advance()
    [again] = story.world.claim(story.worker, story.world.pick())
    story.settle(again, prompt_tokens=37, output_tokens=9)
    today = datetime.now(UTC).date()
    with story.db.transaction() as session:
        while tallies.fold(session):
            pass
        [day] = usage.between(session, "acme", today, today)
        assert (day.succeeded, day.input_tokens, day.output_tokens, day.engine_ms) == (1, 37, 9, 20.0)
        assert quotas.used(session, "acme").queued_jobs == 0
        view = job_view(jobs.get(session, "acme", story.job))
    assert view.overflow is not None
    assert (view.overflow.strategy, view.overflow.parts, view.overflow.levels) == ("map_reduce", 3, 1)


def test_parts_take_no_place_in_the_queue_and_their_tenant_does_not_see_them(story: Story) -> None:
    part = story.parts()[0]["id"]
    with story.db.transaction() as session:
        assert quotas.used(session, "acme").queued_jobs == 1
        assert [row.id for row in jobs.page(session, "acme", after=None, limit=10, status=None)] == [story.job]
        with pytest.raises(NotFound):
            jobs.get(session, "acme", part)


def test_a_failed_part_fails_its_job_with_its_code_and_stops_the_others(story: Story) -> None:
    claimed = story.world.claim(story.worker, story.world.pick())
    failed = Outcome(claimed[1].job_id, claimed[1].fence, "failed", error_code="generation_failed", error_message="m")
    with story.db.transaction() as session:
        transitions.settle(session, [failed])
    story.advance()
    row = story.world.row(story.job)
    assert (row["state"], row["error_code"], row["waits_for_parts"]) == ("failed", "generation_failed", False)
    assert (story.parts(), story.texts()) == ([], 0)
    late = Outcome(claimed[0].job_id, claimed[0].fence, "succeeded", text="x", finish_reason="stop")
    with story.db.transaction() as session:
        assert transitions.settle(session, [late]) == set()


@pytest.mark.parametrize("whose", ["job", "part"])
def test_a_deadline_ends_the_job_and_its_parts_whichever_is_seen_first(story: Story, whose: str) -> None:
    late = story.job if whose == "job" else story.parts()[0]["id"]
    with story.db.transaction() as session:
        at = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(text("UPDATE jobs SET deadline = :at WHERE id = :id"), {"at": at, "id": late})
        assert transitions.expire(session) == {late}
    story.advance()
    assert (story.world.state(story.job), story.parts(), story.texts()) == ("expired", [], 0)


def test_cancelling_the_job_cancels_its_parts_and_counts_one(story: Story, api_db: Database) -> None:
    story.world.claim(story.worker, story.world.pick())
    with api_db.transaction("acme") as session:
        assert transitions.cancel(session, "acme", story.job)
    story.advance()
    assert (story.parts(), story.texts()) == ([], 0)
    with story.db.transaction() as session:
        counted = session.execute(text("SELECT sum(cancelled) FROM tallies")).scalar_one()
        assert counted == 1
        tallies.fold(session)
        assert quotas.used(session, "acme").queued_jobs == 0


def test_a_retired_adapter_fails_the_job_and_its_parts_and_counts_one(system_db: Database, world: World) -> None:
    adapter = world.adapter("acme")
    job: uuid.UUID = world.job("acme", model="tickets")
    [claimed] = world.claim(world.worker(), world.pick())
    with system_db.transaction() as session:
        transitions.divide(session, Division(job, claimed.fence, PIECES, SAMPLING))
        assert len(transitions.fail_unavailable(session, "acme", adapter.adapter_id)) == 4
        transitions.sweep(session)
        assert session.execute(text("SELECT sum(failed) FROM tallies")).scalar_one() == 1
        assert session.execute(text("SELECT count(*) FROM jobs")).scalar_one() == 1
