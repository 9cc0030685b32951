"""The dispatcher beside failing chores, an absent broker and an operator's pause."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from celery import Celery

from registry import operations, queues
from registry.operations import Scope
from registry.queues import make_celery
from registry.settings import Settings
from tests.relay import Relay
from tests.workers.planner_rig import until
from tests.workers.test_dispatcher import Start, sent, start, states
from tests.world import World
from workers import dispatcher
from workers.flow import MIN_UNCLAIMED
from workers.repair import Chore

__all__ = ["start"]


@pytest.mark.parametrize("error", [KeyError("a defect"), "SELECT nothing FROM nowhere"])
def test_a_failing_chore_does_not_stop_the_picking(
    start: Start, world: World, celery: Celery, monkeypatch: pytest.MonkeyPatch, error: Exception | str
) -> None:
    runs: list[None] = []

    def fail(leader: Any) -> None:
        runs.append(None)
        if isinstance(error, Exception):
            raise error
        with leader.transaction() as session:
            session.connection().exec_driver_sql(error)

    monkeypatch.setattr("workers.repair.chores", lambda *_: [Chore(0.0, fail)])
    begun = start()
    until(lambda: len(runs) > 2)
    job = world.job()
    until(lambda: sent(celery) == {job})
    assert begun._leader.leads, "nor does it cost the role"


def test_a_broker_that_is_away_is_asked_seldom_and_gets_every_id_once(
    start: Start, world: World, celery: Celery, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay(settings.valkey_port)
    app = make_celery(settings.model_copy(update={"broker_url": relay.url(settings.resolved_broker_url)}))
    relay.cut()
    tries: list[int] = []
    send = queues.send_jobs

    def counted(celery: Celery, deployment: str, wire_ids: list[str], *, first: bool) -> None:
        tries.extend([len(wire_ids)] * bool(wire_ids))
        send(celery, deployment, wire_ids, first=first)

    monkeypatch.setattr(queues, "send_jobs", counted)
    jobs = [world.job() for _ in range(40)]
    start(app, tick_ms=5.0, resend_after_s=30.0)
    until(lambda: len(tries) >= 3)
    assert set(tries) == {MIN_UNCLAIMED}, "picking stops when the queue has its share"
    begun_s = time.monotonic()
    asked = len(tries)
    until(lambda: time.monotonic() - begun_s > 1.2)
    assert len(tries) - asked <= 1 + 1.2 / dispatcher.BROKER_AWAY_S
    relay.mend()
    until(lambda: len(sent(celery)) == MIN_UNCLAIMED)
    with celery.connection_or_acquire() as connection:
        assert connection.default_channel.client.llen("infer.Tiny") == MIN_UNCLAIMED
    assert states(world, jobs) == ["dispatched", "queued"]
    relay.cut()
    app.close()


def test_a_resumed_tenants_jobs_go_out_at_once(start: Start, world: World, celery: Celery) -> None:
    job = world.job()
    with world.db.transaction() as session:
        operations.pause(session, Scope(tenant="acme"))
    other: uuid.UUID = world.job("globex")
    start()
    until(lambda: sent(celery) == {other})
    with world.db.transaction() as session:
        operations.resume(session, Scope(tenant="acme"))
    until(lambda: sent(celery) == {job, other})
