"""No receiver can hold a sender, flood it, or end an attempt without a reason."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate

import pytest
from aiohttp import web

from registry.webhooks import targets
from registry.webhooks.schedule import Answer
from tests.receiver import Received, Receiver, rules_for, status
from workers import egress as module
from workers.egress import Egress, _retry_after


@pytest.mark.parametrize(("value", "seconds"), [("120", 120.0), ("0", 0.0), ("soon", None), ("-5", None), ("", None)])
def test_retry_after_in_seconds(value: str, seconds: float | None) -> None:
    assert _retry_after(value) == seconds


def test_retry_after_as_a_date() -> None:
    assert 90 < (_retry_after(formatdate(time.time() + 100, usegmt=True)) or 0) < 101
    assert _retry_after(formatdate(0, usegmt=True)) == 0.0


def test_a_receivers_wish_is_part_of_the_answer(post: Callable[..., Answer]) -> None:
    with Receiver(status(429, Retry_After="120")) as receiver:
        answer = post(receiver.url, receiver.rules)
    assert (answer.code, answer.retry_after_s) == (429, 120.0)


def test_an_endless_answer_is_cut_off(post: Callable[..., Answer]) -> None:
    """Row 19: a gigabyte is offered; what the receiver could get rid of is what its own buffers and ours took."""
    written = 0

    async def flood(received: Received, request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(16 * 1024):
            await response.write(b"x" * 65536)
            written += 65536
        return response

    with Receiver(flood) as receiver:
        begun = time.monotonic()
        answer = post(receiver.url, receiver.rules)
    assert answer.code == 200
    assert time.monotonic() - begun < 3
    assert written < 8 * 1024 * 1024


def test_a_trickle_ends_with_the_attempt(post: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 17, with shorter limits: a byte now and then keeps no attempt alive."""
    monkeypatch.setattr(module, "ATTEMPT_S", 0.8)
    monkeypatch.setattr(module, "DRAIN_S", 0.4)

    def trickle(listener: socket.socket, head: bytes) -> None:
        connection, _ = listener.accept()
        with connection, listener:
            connection.recv(65536)
            try:
                for byte in head:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.1)
            except OSError:
                return

    for head, code in ((b"HTTP/1.1 200 OK\r\n" * 10, None), (b"HTTP", None)):
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        threading.Thread(target=trickle, args=(listener, head), daemon=True).start()
        begun = time.monotonic()
        answer = post(f"http://127.0.0.1:{port}/", rules_for(port))
        assert answer.code is code
        assert answer.reason in ("timeout", "connection_lost", "bad_answer")
        assert time.monotonic() - begun < 2


def test_a_body_that_never_ends_does_not_undo_a_200(
    post: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DRAIN_S", 0.3)

    async def drip(received: Received, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x")
            await asyncio.sleep(0.1)
        return response

    with Receiver(drip) as receiver:
        begun = time.monotonic()
        assert post(receiver.url, receiver.rules).code == 200
        assert time.monotonic() - begun < 2


def test_the_limits_of_an_attempt_are_those_promised() -> None:
    assert (module.ATTEMPT_S, module.CONNECT_S, targets.DNS_S, module.MAX_READ) == (15.0, 5.0, 5.0, 64 * 1024)


def test_a_resolver_that_hangs_fails_one_attempt_and_delays_no_other(
    post: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DNS_S", 0.5)
    release = threading.Event()

    def resolve(host: str, port: int) -> Sequence[str]:
        if host == "slow.example":
            release.wait(10)
        return ["127.0.0.1"]

    with Receiver() as receiver:
        egress = Egress(receiver.rules, resolve=resolve)
        slow: list[Answer] = []
        threads = [
            threading.Thread(
                target=lambda: slow.append(egress.post(f"http://slow.example:{receiver.port}/", {}, b"{}"))
            )
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        begun = time.monotonic()
        assert egress.post(f"http://quick.example:{receiver.port}/", {}, b"{}").code == 200
        assert time.monotonic() - begun < 0.4
        for thread in threads:
            thread.join(5)
        release.set()
        egress.close()
    assert {answer.reason for answer in slow} == {"dns_timeout"}
    assert len(slow) == 12


def test_a_reset_connection_is_a_failure_with_a_reason(post: Callable[..., Answer]) -> None:
    async def reset(received: Received, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError

    with Receiver(reset) as receiver:
        answer = post(receiver.url, receiver.rules)
    assert (answer.code, answer.reason) == (None, "connection_lost")


def test_nobody_listening_is_a_failure_with_a_reason(post: Callable[..., Answer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert post(f"http://127.0.0.1:{port}/", rules_for(port)).reason == "connect_failed"
