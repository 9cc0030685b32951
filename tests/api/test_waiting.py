"""Clients that wait for jobs: told soon, for any number of them, at the cost of one connection and no thread."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from httpx2 import AsyncClient, Client, Limits
from sqlalchemy import text
from starlette.requests import Request
from starlette.testclient import TestClient

from api.waiting import Hub, preferred_wait_s
from registry.db import INGEST_ROLE, Database
from registry.ids import to_wire
from registry.settings import Settings
from registry.states import State
from tests.api.finisher import Finisher
from tests.api.live import LiveApi
from tests.e2e.crew import eventually
from tests.world import World

JOB = {"model": "Tiny", "document": "The printer jams."}


@pytest.fixture
def hub(settings: Settings, database_url: str) -> Iterator[Hub]:
    made = Hub(Database(database_url, INGEST_ROLE, pool_size=1))
    yield made
    made.close()


def end(world: World, *job_ids: uuid.UUID) -> float:
    """Cancel jobs; the moment of the commit."""
    with world.db.transaction() as session:
        session.execute(
            text("UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE id = ANY(:ids)"),
            {"ids": list(job_ids)},
        )
    return time.monotonic()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (["wait=5"], 5),
        (["respond-async, wait=10"], 10),
        (["respond-async", "WAIT = 7"], 7),
        (['wait="9"; x=y'], 9),
        (["wait=99999"], 30),
        (["wait=-1"], 0),
        (["wait=soon"], 0),
        (["await=5"], 0),
        (["wait=5x"], 0),
        ([], 0),
    ],
)
def test_the_preference_is_read_as_rfc_7240_writes_it(headers: list[str], seconds: int) -> None:
    raw = [(b"prefer", header.encode()) for header in headers]
    assert preferred_wait_s(Request({"type": "http", "headers": raw}), 30) == seconds


async def test_a_waiter_hears_of_the_end_and_of_no_other(hub: Hub, world: World) -> None:
    ends, stays = world.job(), world.job()
    told, untold = asyncio.create_task(hub.ended(ends, 20)), asyncio.create_task(hub.ended(stays, 1.0))
    await asyncio.sleep(0)
    await asyncio.to_thread(end, world, ends)
    assert await told is True
    assert await untold is False


async def test_waiters_are_told_within_a_tenth_of_a_second(hub: Hub, world: World) -> None:
    latencies_ms = []
    for job_id in [world.job() for _ in range(12)]:
        waiter = asyncio.create_task(hub.ended(job_id, 20))
        await asyncio.sleep(0.01)
        ended_at = await asyncio.to_thread(end, world, job_id)
        assert await waiter
        latencies_ms.append((time.monotonic() - ended_at) * 1000)
    assert statistics.median(latencies_ms) < 100


async def test_a_job_that_has_ended_is_told_at_once_and_twice_asked_twice_told(hub: Hub, world: World) -> None:
    job_id = world.job_in(State.CANCELLED)
    assert list(await asyncio.gather(hub.ended(job_id, 5), hub.ended(job_id, 5))) == [True, True]


async def test_stopping_lets_everybody_go_and_nobody_wait_again(hub: Hub, world: World) -> None:
    waiter = asyncio.create_task(hub.ended(world.job(), 60))
    await asyncio.sleep(0.05)
    hub.stop()
    assert await asyncio.wait_for(waiter, 2) is False
    assert await hub.ended(world.job(), 60) is False


async def test_waiting_outlives_the_database_dropping_the_connection(
    hub: Hub, world: World, superuser: psycopg.Connection[tuple[object, ...]]
) -> None:
    job_id = world.job()
    waiter = asyncio.create_task(hub.ended(job_id, 20))
    await asyncio.sleep(0.1)
    cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'lorry_ingest'"
    assert superuser.execute(cut).fetchone() != (0,)
    await asyncio.to_thread(end, world, job_id)
    assert await waiter


def test_a_job_is_answered_when_it_ends_or_when_the_wait_is_over(acme: TestClient, world: World) -> None:
    slow = acme.post("/v1/jobs", json=JOB, headers={"prefer": "wait=1"})
    assert (slow.status_code, slow.json()["status"]) == (202, "queued")
    assert (slow.headers["preference-applied"], slow.headers["retry-after"]) == ("wait=1", "2")
    with Finisher(world):
        done = acme.get(slow.headers["location"], headers={"prefer": "wait=20"})
        assert (done.status_code, done.json()["status"]) == (200, "succeeded")
        assert done.headers["preference-applied"] == "wait=20"
        quick = acme.post("/v1/jobs", json=JOB, headers={"prefer": "wait=20"})
    assert (quick.status_code, quick.json()["output"]["text"]) == (200, "네, 요약입니다.")
    assert "retry-after" not in quick.headers


def test_without_the_preference_nobody_waits(acme: TestClient, world: World) -> None:
    begun = time.monotonic()
    answer = acme.get(f"/v1/jobs/{to_wire('job', world.job())}")
    assert (answer.status_code, answer.json()["status"]) == (200, "queued")
    assert "preference-applied" not in answer.headers
    assert time.monotonic() - begun < 1


def test_another_tenants_job_is_not_waited_for(
    as_tenant: Callable[[str], TestClient], acme: TestClient, world: World
) -> None:
    begun = time.monotonic()
    foreign = f"/v1/jobs/{to_wire('job', world.job('globex'))}"
    assert acme.get(foreign, headers={"prefer": "wait=20"}).status_code == 404
    assert time.monotonic() - begun < 2


async def test_two_hundred_clients_wait_on_one_connection_and_no_thread(settings: Settings, world: World) -> None:
    jobs = [world.job() for _ in range(5)]
    headers = {"authorization": f"Bearer {world.key()}", "prefer": "wait=30"}
    with LiveApi(settings) as live:
        unlimited = Limits(max_connections=None, max_keepalive_connections=0)
        async with AsyncClient(base_url=live.url, headers=headers, timeout=60, limits=unlimited) as client:
            asked = [
                asyncio.create_task(client.get(f"/v1/jobs/{to_wire('job', jobs[n % len(jobs)])}")) for n in range(200)
            ]
            waiting = live.services.hub.waiting
            await asyncio.to_thread(eventually, lambda: waiting() == 200)
            # The threads and connections of the pool are free for others meanwhile.
            plain = await client.get("/v1/jobs", headers={"prefer": ""})
            assert plain.status_code == 200
            threads = threading.active_count()
            ended_at = await asyncio.to_thread(end, world, *jobs)
            answers = await asyncio.gather(*asked)
            took_s = time.monotonic() - ended_at
    assert {answer.json()["status"] for answer in answers} == {"cancelled"}
    assert threads < 100
    assert took_s < 10


def test_a_server_that_stops_answers_those_who_wait(settings: Settings, world: World) -> None:
    path = f"/v1/jobs/{to_wire('job', world.job())}"
    headers = {"authorization": f"Bearer {world.key()}", "prefer": "wait=30"}
    answers = []
    with LiveApi(settings) as live:

        def ask() -> None:
            with Client(base_url=live.url, timeout=60) as client:
                answers.append(client.get(path, headers=headers))

        asking = threading.Thread(target=ask)
        asking.start()
        eventually(lambda: live.services.hub.waiting() == 1, within_s=10)
        begun = time.monotonic()
    asking.join(10)
    assert time.monotonic() - begun < 5
    assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(200, "queued")]
