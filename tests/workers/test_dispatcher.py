"""The dispatcher against real PostgreSQL and Valkey."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from celery import Celery
from sqlalchemy import text

from registry import ids, queues, wake
from registry.db import Database
from registry.queues import make_celery
from registry.settings import Settings
from tests.relay import Relay
from tests.workers.planner_rig import until
from tests.world import World
from workers import dispatcher
from workers.dispatcher import Dispatcher
from workers.flow import MIN_UNCLAIMED

Start = Callable[..., Dispatcher]


@pytest.fixture
def start(settings: Settings, celery: Celery, system_db: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a dispatcher in a thread; it asks for the role often."""
    monkeypatch.setattr(dispatcher, "SPARE_S", 0.05)
    monkeypatch.setattr(dispatcher, "AWAY_S", 0.05)
    running: list[tuple[Dispatcher, threading.Thread]] = []

    def begin(app: Celery = celery, **changes: Any) -> Dispatcher:
        made = Dispatcher(settings.model_copy(update={"resend_after_s": 0.2, **changes}), app)
        thread = threading.Thread(target=made.run, daemon=True)
        thread.start()
        running.append((made, thread))
        return made

    yield begin
    for made, _ in running:
        made.stop()
    with system_db.transaction() as session:
        session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": wake.QUEUED})
    for _, thread in running:
        thread.join(10)
        assert not thread.is_alive()


def sent(celery: Celery) -> set[uuid.UUID]:
    """The jobs whose messages lie in the queue."""
    return {ids.from_wire("job", wire_id) for wire_id in queues.waiting_ids(celery, "Tiny")}


def states(world: World, jobs: list[uuid.UUID]) -> list[str]:
    return sorted({world.state(job) for job in jobs})


def test_without_workers_a_few_messages_wait_and_the_rest_stays_in_the_backlog(
    start: Start, world: World, celery: Celery
) -> None:
    jobs = [world.job() for _ in range(20)]
    start()
    until(lambda: len(sent(celery)) == MIN_UNCLAIMED)
    world.worker(capacity=12)
    until(lambda: len(sent(celery)) == 12)
    assert sorted(world.state(job) for job in jobs) == ["dispatched"] * 12 + ["queued"] * 8
    assert len(sent(celery)) == 12


def test_an_idle_dispatcher_is_woken_by_a_notice(
    start: Start, world: World, system_db: Database, celery: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own look is a minute away."""
    monkeypatch.setattr(dispatcher, "IDLE_S", 60.0)
    ticks: list[bool] = []
    tick = Dispatcher.tick

    def counted(self: Dispatcher, **news: Any) -> bool:
        ticks.append(tick(self, **news))
        return ticks[-1]

    monkeypatch.setattr(Dispatcher, "tick", counted)
    world.base()
    start()
    until(lambda: ticks == [False])
    job = world.job()
    begun_s = time.monotonic()
    with system_db.transaction() as session:
        session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": wake.QUEUED})
    until(lambda: sent(celery) == {job})
    assert time.monotonic() - begun_s < 5


def test_a_spare_takes_over_when_the_leaders_connection_is_lost(
    start: Start, world: World, celery: Celery, superuser: psycopg.Connection[Any]
) -> None:
    first = start()
    until(lambda: first._leader.leads)
    spare = start()
    world.job()
    until(lambda: sent(celery))
    assert not spare._leader.leads
    first.stop()  # so that it cannot win the role back
    superuser.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    until(lambda: spare._leader.leads)
    job = world.job()
    until(lambda: job in sent(celery))


def test_a_lost_leader_leads_again_by_itself(
    start: Start, world: World, celery: Celery, superuser: psycopg.Connection[Any]
) -> None:
    first = start()
    until(lambda: first._leader.leads)
    superuser.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND granted")
    job = world.job()
    until(lambda: job in sent(celery))


def test_jobs_wait_while_the_broker_is_away_and_go_out_when_it_is_back(
    start: Start, world: World, celery: Celery, settings: Settings
) -> None:
    relay = Relay(settings.valkey_port)
    app = make_celery(settings.model_copy(update={"broker_url": relay.url(settings.resolved_broker_url)}))
    relay.cut()
    start(app)
    jobs = [world.job() for _ in range(3)]
    until(lambda: states(world, jobs) == ["dispatched"])
    assert sent(celery) == set()
    relay.mend()
    until(lambda: sent(celery) == set(jobs))
    relay.cut()
    app.close()


def test_a_forgetful_broker_is_told_again(start: Start, world: World, celery: Celery) -> None:
    jobs = [world.job() for _ in range(3)]
    start()
    until(lambda: sent(celery) == set(jobs))
    with celery.connection_or_acquire() as connection:
        connection.default_channel.client.flushall()
    until(lambda: sent(celery) == set(jobs))


def test_jobs_of_a_dead_worker_are_sent_again(start: Start, world: World, system_db: Database, celery: Celery) -> None:
    job, worker = world.job(), world.worker()
    world.claim(worker, world.pick())
    with system_db.transaction() as session:
        session.execute(text("UPDATE workers SET beat_at = to_timestamp(0)"))
    start(lease_s=0.5)
    until(lambda: sent(celery) == {job})
