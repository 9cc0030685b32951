"""Pauses, drains, and what follows a restore, in the registry."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text

from registry import operations, presence, transitions
from registry.backlog import loads
from registry.db import Database
from registry.errors import NotFound
from registry.operations import Scope
from registry.presence import Beat
from registry.secrets import SecretBox
from registry.settings import Settings
from tests.hooks import Hooks
from tests.world import World

TICKETS = Scope(adapter=("acme", "tickets", 1))
TENANT = Scope(tenant="acme")
DEPLOYMENT = Scope(deployment="Tiny")


def pause(database: Database, scope: Scope) -> int:
    with database.transaction() as session:
        return operations.pause(session, scope)


@pytest.mark.parametrize("scope", [TICKETS, Scope(adapter=("acme", "tickets", None)), TENANT])
def test_what_is_paused_is_not_picked_and_the_rest_is(world: World, system_db: Database, scope: Scope) -> None:
    world.adapter()
    world.adapter("globex")
    paused, free = world.job(model="tickets"), world.job("globex", model="tickets")
    pause(system_db, scope)
    assert world.pick() == [free]
    with system_db.transaction() as session:
        operations.resume(session, scope)
    assert world.pick() == [paused]


def test_a_deadline_does_not_get_around_a_pause(world: World, system_db: Database) -> None:
    job, free = world.job(), world.job("globex")
    with system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET deadline = now() + interval '9 s' WHERE id = :id"), {"id": job})
    pause(system_db, TENANT)
    assert world.pick() == [free]


def test_a_paused_deployment_has_nothing_to_pick(world: World, system_db: Database) -> None:
    world.job()
    pause(system_db, DEPLOYMENT)
    with system_db.transaction() as session:
        (load,) = loads(session, 30.0)
        assert (load.has_queued, load.busy) == (False, False)
        assert [(found["kind"], found["name"]) for found in operations.paused(session)] == [("deployment", "Tiny")]


@pytest.mark.parametrize("scope", [TICKETS, TENANT, DEPLOYMENT])
def test_a_pause_takes_back_what_nobody_has_claimed_and_leaves_what_runs(
    world: World, system_db: Database, scope: Scope
) -> None:
    world.adapter()
    for _ in range(3):
        world.job(model="tickets")
    picked = world.pick()
    world.claim(world.worker(), picked[:1])
    assert pause(system_db, scope) == 2
    assert [world.state(job) for job in picked] == ["running", "queued", "queued"]


def test_a_second_pause_keeps_the_first_ones_time(world: World, system_db: Database) -> None:
    world.tenant()
    pause(system_db, TENANT)
    with system_db.transaction() as session:
        first = operations.paused(session)
    pause(system_db, TENANT)
    with system_db.transaction() as session:
        assert operations.paused(session) == first


@pytest.mark.parametrize("scope", [Scope(tenant="who"), Scope(deployment="who"), Scope(adapter=("acme", "who", None))])
def test_what_is_not_there_cannot_be_paused(system_db: Database, scope: Scope) -> None:
    with pytest.raises(NotFound, match="who"):
        pause(system_db, scope)


def test_only_the_worker_that_is_meant_is_asked_to_drain(world: World, system_db: Database) -> None:
    meant, other = world.worker(), world.worker()
    with system_db.transaction() as session:
        assert operations.drain(session, str(meant)) == [meant]
        assert presence.beat(session, meant, Beat(0, 0, {})), "it lives on until it has finished"
        assert [presence.asked_to_drain(session, worker) for worker in (meant, other)] == [True, False]
        with pytest.raises(NotFound):
            operations.drain(session, "nobody")


def test_after_a_restore_what_was_under_way_waits_again_unharmed(world: World, system_db: Database) -> None:
    jobs = [world.job() for _ in range(3)]
    world.claim(world.worker(), world.pick(2)[:1])
    with system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET started_at = now() WHERE state = 'running'"))
        found = operations.after_restore(session)
    assert (found.workers, found.jobs) == (1, 2)
    assert {(world.state(job), world.row(job)["crashes"]) for job in jobs} == {("queued", 0)}
    with system_db.transaction() as session:
        assert presence.all_workers(session) == []


def test_after_a_restore_events_that_may_have_been_sent_are_held_and_new_ones_are_not(
    world: World, system_db: Database, settings: Settings
) -> None:
    hooks = Hooks(world, SecretBox(settings))
    hooks.endpoint()
    waiting = hooks.cancelled_job()
    under_way = world.job()
    with system_db.transaction() as session:
        assert operations.after_restore(session).deliveries == 1
        transitions.cancel(session, "acme", under_way)
    time.sleep(0.002)  # ids count milliseconds
    new = hooks.cancelled_job()
    with system_db.transaction() as session:
        rows = session.execute(text("SELECT subject, state, log -> -1 ->> 'error' AS error FROM webhook_deliveries"))
        assert {row.subject: (row.state, row.error) for row in rows} == {
            waiting: ("exhausted", "restored"),
            under_way: ("exhausted", "restored"),
            new: ("pending", None),
        }
