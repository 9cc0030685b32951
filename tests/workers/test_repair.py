"""What the dispatcher repairs, against real servers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from celery import Celery
from sqlalchemy import text

from registry import ids, queues
from registry.db import Database
from registry.queues import make_celery
from registry.settings import Settings
from registry.states import State
from registry.transitions import settle
from tests.relay import Relay
from tests.workers.test_settle import done
from tests.world import World
from workers import repair, rescue
from workers.leader import Leader
from workers.repair import Chore, LostMessages


@pytest.fixture
def leader(system_db: Database) -> Iterator[Leader]:
    made = Leader(system_db.engine)
    assert made.try_to_lead()
    yield made
    made.resign()


def send(celery: Celery, jobs: list[uuid.UUID]) -> None:
    queues.send_jobs(celery, "Tiny", [ids.to_wire("job", job) for job in jobs])


def silence(database: Database, worker: uuid.UUID) -> None:
    """Its last beat was long ago."""
    with database.transaction() as session:
        session.execute(text("UPDATE workers SET beat_at = to_timestamp(0) WHERE id = :id"), {"id": worker})


def test_a_lost_message_is_found_only_when_it_is_missing_twice(world: World, leader: Leader, celery: Celery) -> None:
    lost, sent = world.job(), world.job()
    world.pick()
    send(celery, [sent])
    finder = LostMessages(celery, age_s=0)
    finder.look(leader)
    assert [world.state(lost), world.state(sent)] == ["dispatched", "dispatched"]
    finder.look(leader)
    assert [world.state(lost), world.state(sent)] == ["queued", "dispatched"]


def test_a_message_that_came_late_is_not_lost(world: World, leader: Leader, celery: Celery) -> None:
    job = world.job()
    world.pick()
    finder = LostMessages(celery, age_s=0)
    finder.look(leader)
    send(celery, [job])
    finder.look(leader)
    finder.look(leader)
    assert world.state(job) == "dispatched"


def test_what_else_lies_in_a_queue_does_not_hide_a_lost_message(world: World, leader: Leader, celery: Celery) -> None:
    lost = world.job()
    world.pick()
    queues.send_jobs(celery, "Tiny", ["a message of somebody else"])
    finder = LostMessages(celery, age_s=0)
    finder.look(leader)
    finder.look(leader)
    assert world.state(lost) == "queued"


def test_young_jobs_are_not_suspected(world: World, leader: Leader, celery: Celery) -> None:
    job = world.job()
    world.pick()
    finder = LostMessages(celery, age_s=60)
    for _ in range(3):
        finder.look(leader)
    assert world.state(job) == "dispatched"


def test_while_the_broker_is_away_nothing_is_taken_for_lost(world: World, leader: Leader, settings: Settings) -> None:
    job = world.job()
    world.pick()
    relay = Relay(settings.valkey_port)
    app = make_celery(settings.model_copy(update={"broker_url": relay.url(settings.resolved_broker_url)}))
    finder = LostMessages(app, age_s=0)
    relay.cut()
    for _ in range(3):
        finder.look(leader)
    app.close()
    assert world.state(job) == "dispatched"


def test_what_a_silent_worker_held_is_queued_again(world: World, leader: Leader, system_db: Database) -> None:
    silent, lively = world.worker(), world.worker()
    jobs = [world.job(), world.job()]
    picked = world.pick()
    world.claim(silent, picked[:1])
    world.claim(lively, picked[1:])
    silence(system_db, silent)
    rescue.take_back(leader, lease_s=0.5)
    assert sorted(world.state(job) for job in jobs) == ["queued", "running"]
    assert world.row(picked[0])["crashes"] == 0, "it had not begun"
    assert world.claim(silent, world.pick()) == []


def test_nobody_is_dead_until_the_database_has_been_up_for_a_lease(
    world: World, leader: Leader, system_db: Database
) -> None:
    worker, job = world.worker(), world.job()
    world.claim(worker, world.pick())
    silence(system_db, worker)
    rescue.take_back(leader, lease_s=1e6)
    assert world.state(job) == "running"


def test_jobs_past_their_deadline_expire(world: World, leader: Leader) -> None:
    late, fine = world.job_in(State.QUEUED), world.job()
    repair.expire(leader)
    assert [world.state(late), world.state(fine)] == ["expired", "queued"]


def test_tallies_are_folded_into_usage(world: World, leader: Leader, system_db: Database) -> None:
    job = world.job()
    world.claim(world.worker(), world.pick())
    with system_db.transaction() as session:
        settle(session, [done(job, prompt_tokens=3, output_tokens=4)])
    repair.fold(leader)
    with leader.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM tallies")) == 0
        assert session.execute(text("SELECT succeeded, prompt_tokens FROM usage_days")).all() == [(1, 3)]


def test_answers_that_nobody_gets_any_more_are_deleted(world: World, leader: Leader) -> None:
    world.tenant()
    with leader.transaction() as session:
        for number, hours in enumerate((-1, 1)):
            session.execute(
                text("""INSERT INTO kept_answers (tenant_id, scope, fingerprint, status, body, is_sealed, expires_at)
                        VALUES ('acme', :scope, :scope, 202, '{}', false, now() + make_interval(hours => :hours))"""),
                {"scope": bytes([number]) * 32, "hours": hours},
            )
    repair.forget_answers(leader)
    with leader.transaction() as session:
        assert session.scalars(text("SELECT scope FROM kept_answers")).all() == [b"\x01" * 32]


def test_there_are_tables_for_the_days_to_come(leader: Leader) -> None:
    repair.make_tables(leader)
    with leader.transaction() as session:
        last = session.scalar(
            text("SELECT to_regclass('job_inputs_' || to_char((now() AT TIME ZONE 'UTC')::date + 6, 'YYYYMMDD'))")
        )
        names = session.scalars(text("SELECT relname FROM pg_class WHERE relname LIKE 'job_inputs%'")).all()
    assert last is not None, names


def test_a_chore_runs_at_its_own_pace(leader: Leader) -> None:
    runs: list[Leader] = []
    chore = Chore(2.0, runs.append)
    for now_s in (0.0, 1.9, 2.0, 3.9, 10.0):
        chore.run_if_due(leader, now_s)
    assert len(runs) == 3


def test_a_chore_that_fails_is_not_tried_at_every_tick(leader: Leader) -> None:
    def fails(_leader: Leader) -> None:
        raise KeyError

    chore = Chore(2.0, fails)
    with pytest.raises(KeyError):
        chore.run_if_due(leader, 1.0)
    chore.run_if_due(leader, 1.5)
