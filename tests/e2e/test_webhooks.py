"""Webhooks through the real processes: dispatcher, GPU worker, io worker, and receivers that misbehave."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from registry.secrets import SecretBox
from registry.settings import Settings
from tests.e2e.crew import Crew, Member, eventually
from tests.hooks import BATCH_EVENTS, Hooks
from tests.receiver import Received, Receiver
from tests.world import World

LINES = 300


@pytest.fixture
def hooks(world: World, settings: Settings) -> Hooks:
    return Hooks(world, SecretBox(settings))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


def io_worker(crew: Crew, *ports: int) -> Member:
    """An io worker that may reach these ports of the loopback."""
    return crew.start(
        "workers.main",
        "io",
        LORRY_WEBHOOK_ALLOW_HTTP="true",
        LORRY_WEBHOOK_ALLOW_NETWORKS="127.0.0.0/8",
        LORRY_WEBHOOK_PORTS=",".join(map(str, ports)),
        LORRY_LEASE_S="30",
    )


def test_all_results_arrive_at_a_receiver_that_fails_one_request_in_five(
    crew: Crew, hooks: Hooks, receiver: Receiver
) -> None:
    taken: dict[int, list[int]] = {}

    async def fail_each_fifth(received: Received, request: web.Request) -> web.StreamResponse:
        if received.number % 5 == 4:
            return web.Response(status=500)
        event = received.event
        if event["type"] == "batch.results":
            taken[event["data"]["chunk"]] = [line["line"] for line in event["data"]["lines"]]
        return web.Response()

    receiver.answer = fail_each_fifth
    _, secret = hooks.endpoint(receiver.url, BATCH_EVENTS, deliver="results")
    hooks.batch(LINES)
    crew.dispatcher(LORRY_LEASE_S="30")
    crew.worker()
    io_worker(crew, receiver.port)

    def assembled() -> bool:
        lasts = [got.event["data"] for got in receiver.received if b'"last":true' in got.body]
        return bool(lasts) and len(taken) == lasts[-1]["chunks"]

    eventually(assembled, within_s=60)
    assert sorted(line for lines in taken.values() for line in lines) == list(range(1, LINES + 1))
    assert sorted(taken) == list(range(1, len(taken) + 1))
    eventually(lambda: {row.state for row in hooks.deliveries()} == {"delivered"}, within_s=30)
    for got in receiver.received:
        Webhook(secret).verify(got.body, got.headers)
    ends = [got.event for got in receiver.received if got.event["type"] == "batch.completed"]
    assert ends[0]["data"]["request_counts"]["completed"] == LINES


def test_slow_receivers_delay_nobody_else(crew: Crew, hooks: Hooks, receiver: Receiver) -> None:
    """Row 17: five tenants' receivers take the request and say nothing; another one's deliveries arrive at once."""
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=64) for _ in range(5)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for number, port in enumerate(ports):
        hooks.endpoint(f"http://127.0.0.1:{port}/", tenant=f"slow{number}")
        for _ in range(12):
            hooks.cancelled_job(f"slow{number}")
    crew.dispatcher(LORRY_LEASE_S="30")
    io_worker(crew, receiver.port, *ports)
    eventually(lambda: sum(row.state == "sending" for row in hooks.deliveries()) == 20)
    arrived: dict[str, float] = {}

    async def note(received: Received, request: web.Request) -> web.StreamResponse:
        arrived[received.event["data"]["id"]] = time.time()
        return web.Response()

    receiver.answer = note
    hooks.endpoint(receiver.url, tenant="quick")
    for number in range(5):
        hooks.cancelled_job("quick")
        eventually(lambda n=number: len(arrived) == n + 1, within_s=10)  # type: ignore[misc]
    ended = {
        f"job_{row.subject.hex}": row.created_at
        for row in hooks.deliveries()
        if row.tenant_id == "quick" and row.subject
    }
    delays = [arrived[job] - at.timestamp() for job, at in ended.items()]
    # Up to a second passes until the idle dispatcher looks; the slow ones may add no more than another.
    assert max(delays) <= 2.0, delays
    for listener in listeners:
        listener.close()


@pytest.mark.long
def test_an_attempt_at_a_trickling_receiver_ends_within_sixteen_seconds(crew: Crew, hooks: Hooks) -> None:
    """Row 17, with the product's own limits."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def trickle() -> None:
        connection, _ = listener.accept()
        with suppress(OSError):
            for byte in b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100:
                connection.sendall(bytes([byte]))
                time.sleep(1)

    threading.Thread(target=trickle, daemon=True).start()
    hooks.endpoint(f"http://127.0.0.1:{port}/")
    hooks.cancelled_job()
    crew.dispatcher(LORRY_LEASE_S="30")
    io_worker(crew, port)
    eventually(lambda: hooks.deliveries()[0].log, within_s=40)
    (row,) = hooks.deliveries()
    assert row.log[0]["error"] == "timeout"
    assert 14_000 <= row.log[0]["latency_ms"] <= 16_000


def test_an_io_worker_that_is_told_to_stop_finishes_what_it_sends(crew: Crew, hooks: Hooks, receiver: Receiver) -> None:
    async def slowly(received: Received, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1.5)
        return web.Response()

    receiver.answer = slowly
    hooks.endpoint(receiver.url)
    for _ in range(8):
        hooks.cancelled_job()
    crew.dispatcher(LORRY_LEASE_S="30")
    member = io_worker(crew, receiver.port)
    eventually(lambda: len(receiver.received) == 4)
    member.terminate()
    assert member.exit_code(20) == 0
    assert sum(row.state == "delivered" for row in hooks.deliveries()) == len(receiver.received)
    assert "sending" not in {row.state for row in hooks.deliveries()}
