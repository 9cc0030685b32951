"""Limits are exact under parallel submissions, and what ends or is deleted is free again."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from registry import adapters, jobs, quotas, tallies, transitions
from registry.db import Database
from registry.errors import InsufficientQuota, LorryError, NotFound, RateLimited
from registry.models import File
from registry.settings import Settings
from registry.shapes import JobCreate
from registry.transitions import Outcome
from tests.world import World

LIMIT = 50
PARALLEL = 200


def set_limits(world: World, **limits: int | None) -> None:
    with world.db.transaction() as session:
        quotas.set_limits(session, "acme", **limits)


def queued(world: World) -> int:
    with world.db.transaction() as session:
        return int(quotas.used(session, "acme").queued_jobs)


@pytest.fixture
def submit(world: World, api_db: Database, settings: Settings) -> Callable[[], uuid.UUID]:
    """Submit one job as the API does."""
    world.tenant()
    base = world.base()

    def one() -> uuid.UUID:
        with api_db.transaction("acme") as session:
            resolved = adapters.resolve(session, "acme", base)
            job_id = jobs.submit(session, "acme", JobCreate(model=base, document="x"), resolved, 16)
            quotas.reserve_jobs(session, "acme", 1, settings)
        return job_id

    return one


def in_parallel(work: Callable[[], object], times: int) -> list[LorryError | object]:
    """Run it so often at once; answers and refusals."""
    gate = threading.Barrier(8)

    def guarded(number: int) -> LorryError | object:
        if number < 8:
            gate.wait(30)
        try:
            return work()
        except LorryError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(guarded, range(times)))


def test_parallel_submissions_never_pass_the_limit_and_reach_it(world: World, submit: Callable[[], uuid.UUID]) -> None:
    set_limits(world, queued_jobs=LIMIT)
    answers = in_parallel(submit, PARALLEL)
    refusals = [answer for answer in answers if isinstance(answer, LorryError)]
    assert len(answers) - len(refusals) == LIMIT == queued(world)
    assert {type(refusal) for refusal in refusals} == {RateLimited}
    assert all(1 <= (refusal.retry_after_s or 0) <= quotas.MAX_RETRY_AFTER_S for refusal in refusals)
    with world.db.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM jobs")) == LIMIT


def test_every_kind_of_end_frees_its_place(world: World, submit: Callable[[], uuid.UUID]) -> None:
    set_limits(world, queued_jobs=3)
    done, failed, cancelled = submit(), submit(), submit()
    worker = world.worker()
    world.pick()
    world.claim(worker, [done, failed])
    with world.db.transaction() as session:
        good = Outcome(
            done, 1, "succeeded", text="y", finish_reason="stop", prompt_tokens=2, output_tokens=1, timing={}
        )
        transitions.settle(session, [good, Outcome(failed, 1, "failed", error_code="generation_failed")])
        transitions.cancel(session, "acme", cancelled)
    with pytest.raises(RateLimited):
        submit()
    with world.db.transaction() as session:
        tallies.fold(session)
    assert queued(world) == 0
    assert [submit(), submit(), submit()]
    with pytest.raises(RateLimited):
        submit()


def test_jobs_that_expire_and_lose_their_adapter_free_their_places(world: World) -> None:
    adapter = world.adapter()
    world.job(model="tickets")
    late = world.job(model="tickets")
    with world.db.transaction() as session:
        session.execute(text("UPDATE jobs SET deadline = now() WHERE id = :id"), {"id": late})
    assert queued(world) == 2
    with world.db.transaction() as session:
        transitions.expire(session)
        transitions.fail_unavailable(session, "acme", adapter.adapter_id)
        tallies.fold(session)
    assert queued(world) == 0


def test_more_jobs_than_the_whole_queue_are_no_matter_of_waiting(
    world: World, api_db: Database, settings: Settings
) -> None:
    world.tenant()
    set_limits(world, queued_jobs=3)
    with api_db.transaction("acme") as session, pytest.raises(InsufficientQuota):
        quotas.reserve_jobs(session, "acme", 4, settings)


def test_a_used_up_day_refuses_submissions_until_the_next(world: World, submit: Callable[[], uuid.UUID]) -> None:
    set_limits(world, tokens_per_day=100)
    submit()
    with world.db.transaction() as session:
        session.execute(
            text("""INSERT INTO usage_days (tenant_id, day, adapter_key, prompt_tokens)
            VALUES ('acme', (now() AT TIME ZONE 'UTC')::date, 0, 60),
                   ('acme', (now() AT TIME ZONE 'UTC')::date - 1, 0, 1000)""")
        )
    submit()
    with world.db.transaction() as session:
        session.execute(
            text("""INSERT INTO tallies (tenant_id, day, adapter_key, output_tokens)
            VALUES ('acme', (now() AT TIME ZONE 'UTC')::date, 7, 40)""")
        )
    with pytest.raises(InsufficientQuota, match="100 of 100 tokens"):
        submit()


def test_parallel_uploads_never_pass_the_limit_and_deleting_frees(
    world: World, api_db: Database, settings: Settings
) -> None:
    world.tenant()
    set_limits(world, stored_bytes=1000)

    def upload() -> None:
        with api_db.transaction("acme") as session:
            file = File(id=uuid.uuid4(), tenant_id="acme", purpose="batch", filename="x", bytes=100, path="/x")
            session.add(file)
            session.flush()
            quotas.reserve_bytes(session, "acme", settings)

    answers = in_parallel(upload, 40)
    assert sum(answer is None for answer in answers) == 10
    assert {type(answer) for answer in answers if answer is not None} == {InsufficientQuota}
    with api_db.transaction("acme") as session:
        assert session.execute(text("SELECT sum(bytes) FROM files")).scalar_one() == 1000
        session.execute(text("DELETE FROM files WHERE id = (SELECT id FROM files LIMIT 1)"))
    upload()
    with pytest.raises(InsufficientQuota):
        upload()


def test_adapters_count_as_stored_bytes(world: World) -> None:
    size = world.adapter().size_bytes
    with world.db.transaction() as session:
        assert quotas.used(session, "acme").stored_bytes == size > 0


def test_posts_are_counted_by_the_minute_exactly_and_come_back_one_by_one(
    world: World, api_db: Database, settings: Settings
) -> None:
    world.tenant()
    set_limits(world, posts_per_minute=30)

    def post() -> quotas.Rate:
        with api_db.transaction("acme") as session:
            return quotas.take_post(session, "acme", settings)

    rates = [rate for rate in in_parallel(post, 60) if isinstance(rate, quotas.Rate)]
    allowed = [rate for rate in rates if not rate.wait_s]
    assert sorted(rate.remaining for rate in allowed)[:2] == [0, 1]
    assert 30 <= len(allowed) <= 31  # one comes back every two seconds, and this took a moment
    assert all(1 <= rate.wait_s <= 2 and rate.full_in_s <= 60 for rate in rates if rate.wait_s)
    with world.db.transaction() as session:
        session.execute(text("UPDATE post_rates SET empty_at = empty_at - interval '4 seconds'"))
    assert [post().wait_s > 0 for _ in range(4)][:2] == [False, False]
    assert post().wait_s > 0


def test_a_tenants_own_limit_goes_before_the_default_and_back(world: World, settings: Settings) -> None:
    world.tenant()
    set_limits(world, queued_jobs=7, tokens_per_day=8)
    set_limits(world, tokens_per_day=None)
    with world.db.transaction() as session:
        limits = quotas.limits_of(session, "acme", settings)
        assert (limits.queued_jobs, limits.tokens_per_day) == (7, settings.quota_tokens_per_day)
        with pytest.raises(NotFound):
            quotas.set_limits(session, "nobody", queued_jobs=1)


def test_submissions_do_not_wait_for_the_fold(
    world: World, system_db: Database, submit: Callable[[], uuid.UUID]
) -> None:
    with system_db.transaction() as folding:
        folding.execute(
            text("""INSERT INTO tallies (tenant_id, day, adapter_key, failed)
            VALUES ('acme', current_date, 0, 1)""")
        )
        tallies.fold(folding)
        assert submit()
