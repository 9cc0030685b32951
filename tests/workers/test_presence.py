"""A worker's row and beat, against real PostgreSQL."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from registry import presence as rows
from registry import transitions, wake
from registry.db import SYSTEM_ROLE, Database
from registry.errors import Unavailable
from registry.presence import Beat
from registry.settings import Settings
from tests.relay import Relay
from tests.workers.planner_rig import until
from tests.world import World
from workers.presence import Presence

Make = Callable[..., Presence]
SELDOM_S = 60.0


class Holder:
    """What a planner is to presence: it holds, and lets go."""

    def __init__(self, *held: uuid.UUID) -> None:
        self.held, self.let_go = set(held), list[uuid.UUID]()

    def ready(self, presence: Presence) -> None:
        presence.ready(lambda: Beat(len(self.held), 1, {"slots": [7]}), lambda: set(self.held), self.abandon)

    def abandon(self, job_ids: set[uuid.UUID]) -> None:
        self.let_go += job_ids
        self.held -= job_ids


@pytest.fixture
def make(world: World, system_db: Database, database_url: str) -> Iterator[Make]:
    made: list[Presence] = []
    world.base()

    def build(
        beat_s: float = 0.05, database: Database = system_db, url: str = database_url, name: str = "w"
    ) -> Presence:
        made.append(Presence(database, url, name, "Tiny", 8, beat_s))
        return made[-1]

    yield build
    for presence in made:
        presence.end()


def row(database: Database, worker_id: uuid.UUID) -> dict[str, Any]:
    with database.transaction() as session:
        found = session.execute(text("SELECT * FROM workers WHERE id = :id"), {"id": worker_id})
        return dict(found.mappings().one())


def execute(database: Database, sql: str, **values: Any) -> None:
    with database.transaction() as session:
        session.execute(text(sql), values)


def test_a_worker_is_there_at_once_ready_later_and_says_goodbye(make: Make, system_db: Database) -> None:
    presence = make(SELDOM_S)
    assert row(system_db, presence.worker_id)["state"] == "starting"
    Holder().ready(presence)
    assert row(system_db, presence.worker_id)["state"] == "ready"
    begun_s = time.monotonic()
    presence.end()
    assert row(system_db, presence.worker_id)["state"] == "ended"
    assert time.monotonic() - begun_s < 4, "not after a whole beat"


def test_beats_go_on_and_carry_the_report(make: Make, system_db: Database) -> None:
    presence = make()
    Holder(uuid.uuid4()).ready(presence)
    until(lambda: row(system_db, presence.worker_id)["residency"] == {"slots": [7]})
    first = row(system_db, presence.worker_id)
    assert (first["held"], first["live"], first["capacity"]) == (1, 1, 8)
    until(lambda: row(system_db, presence.worker_id)["beat_at"] > first["beat_at"])


def test_a_state_that_could_not_be_written_is_written_at_a_later_beat(
    make: Make, system_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence = make()
    with monkeypatch.context() as away:
        away.setattr(rows, "become", lambda *_: (_ for _ in ()).throw(Unavailable("away")))
        Holder().ready(presence)
        assert row(system_db, presence.worker_id)["state"] == "starting"
    until(lambda: row(system_db, presence.worker_id)["state"] == "ready")


def test_a_worker_that_was_declared_dead_lets_its_jobs_go_and_comes_back_as_another(
    make: Make, system_db: Database
) -> None:
    presence, job = make(1.0), uuid.uuid4()
    holder = Holder(job)
    old = presence.worker_id
    execute(system_db, "UPDATE workers SET state = 'dead' WHERE id = :id", id=old)
    holder.ready(presence)
    until(lambda: holder.let_go == [job])
    until(lambda: presence.worker_id != old and row(system_db, presence.worker_id)["state"] == "ready")


def test_of_two_states_told_at_once_the_later_is_the_last_to_be_written(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence = make()
    written: list[str] = []
    begun, may_end = threading.Event(), threading.Event()

    def become(_session: object, _worker: object, state: str) -> None:
        if state == "starting":
            begun.set()
            assert may_end.wait(10)
        written.append(state)

    monkeypatch.setattr(rows, "become", become)
    earlier, later = (threading.Thread(target=presence.become, args=(state,)) for state in ("starting", "ready"))
    earlier.start()
    assert begun.wait(10)
    later.start()
    later.join(0.3)  # it would be through by now if it did not wait
    may_end.set()
    earlier.join()
    later.join()
    assert written == ["starting", "ready"]


def test_a_worker_that_comes_back_as_another_says_so_later_if_it_cannot_at_once(
    make: Make, system_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence = make()
    Holder().ready(presence)
    old, refused = presence.worker_id, threading.Event()

    def away(*_: object) -> None:
        refused.set()
        raise Unavailable("away")

    with monkeypatch.context() as outage:
        outage.setattr(rows, "become", away)
        execute(system_db, "UPDATE workers SET state = 'dead' WHERE id = :id", id=old)
        assert refused.wait(10)
    until(lambda: presence.worker_id != old and row(system_db, presence.worker_id)["state"] == "ready")


def test_a_cancel_is_heard_long_before_the_beat(
    make: Make, world: World, system_db: Database, superuser: psycopg.Connection[Any]
) -> None:
    presence = make(SELDOM_S)
    kept, cancelled = world.job(), world.job()
    world.claim(presence.worker_id, world.pick())
    holder = Holder(kept, cancelled)
    holder.ready(presence)
    until(lambda: hears(superuser))
    with system_db.transaction() as session:
        assert transitions.cancel(session, "acme", cancelled)
    begun_s = time.monotonic()
    execute(system_db, "SELECT pg_notify(:channel, '')", channel=wake.CANCELLED)
    until(lambda: holder.let_go)
    assert time.monotonic() - begun_s < 1.0
    assert holder.let_go == [cancelled]


def test_a_cancel_without_a_notice_is_found_at_the_beat(make: Make, world: World, system_db: Database) -> None:
    presence, job = make(0.1), world.job()
    world.claim(presence.worker_id, world.pick())
    holder = Holder(job)
    holder.ready(presence)
    with system_db.transaction() as session:
        transitions.cancel(session, "acme", job)
    until(lambda: holder.let_go == [job])


def test_a_new_incarnation_silences_those_of_its_name_on_its_host(make: Make, system_db: Database) -> None:
    here = socket.gethostname()
    with system_db.transaction() as session:
        earlier = rows.register(session, "w", "Tiny", here, os.getpid(), 8)  # containers have their pids again
        elsewhere = rows.register(session, "w", "Tiny", "another-host", 1, 8)
        another = rows.register(session, "another", "Tiny", here, 1, 8)
    newest = make(SELDOM_S).worker_id
    silent = [row(system_db, worker)["beat_at"].year == 1970 for worker in (earlier, elsewhere, another, newest)]
    assert silent == [True, False, False, False]


def test_beats_come_back_with_the_database(make: Make, system_db: Database, settings: Settings) -> None:
    relay = Relay(settings.pg_port)
    url = relay.url(settings.resolved_database_url)
    database = Database(url, SYSTEM_ROLE, pool_size=1)
    presence = make(0.05, database, url)
    Holder().ready(presence)
    relay.cut()
    execute(system_db, "UPDATE workers SET beat_at = to_timestamp(0) WHERE id = :id", id=presence.worker_id)
    relay.mend()
    until(lambda: row(system_db, presence.worker_id)["beat_at"].year > 1970)
    presence.end()
    database.close()
    relay.cut()


def hears(superuser: psycopg.Connection[Any]) -> bool:
    """Whether some connection has said LISTEN: it is the last thing it said."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'"
    return bool(superuser.execute(query).fetchone() != (0,))


def test_a_claim_whose_answer_was_lost_is_handed_back_and_what_is_in_hand_is_not(make: Make, world: World) -> None:
    presence = make()
    kept, forgotten = world.job(), world.job()
    world.pick()
    assert len(world.claim(presence.worker_id, [kept, forgotten])) == 2
    presence.ready(lambda: Beat(0, 0, {}), set, lambda _: None, lambda: {kept})
    until(lambda: world.state(forgotten) == "queued")
    assert world.state(kept) == "running"
