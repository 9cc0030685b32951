"""A webhook receiver on the loopback, in a thread of its own: it keeps what arrives and answers as it is told."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from aiohttp import web

from registry.webhooks.targets import TargetRules


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes
    number: int

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


Answer = Callable[[Received, web.Request], Awaitable[web.StreamResponse]]


async def accept(received: Received, request: web.Request) -> web.StreamResponse:
    """200, nothing else."""
    return web.Response(text="ok")


def status(code: int, **headers: str) -> Answer:
    """Always this status."""

    async def answer(received: Received, request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


class Receiver:
    """`with Receiver() as receiver:`; `receiver.url`, `receiver.received`. `answer` may be replaced at any time."""

    def __init__(self, answer: Answer = accept) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self.at_once = 0
        self.most_at_once = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def rules(self) -> TargetRules:
        """Rules that let an egress reach this receiver."""
        return rules_for(self.port)

    def __enter__(self) -> Receiver:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=4 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._on_request)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _on_request(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        received = Received(request.path_qs, headers, body, len(self.received))
        self.received.append(received)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self.answer(received, request)
        finally:
            self.at_once -= 1


def rules_for(*ports: int) -> TargetRules:
    """Rules that let an egress reach these ports of the loopback."""
    return TargetRules(http=True, ports=frozenset(ports), networks=(ipaddress.ip_network("127.0.0.0/8"),))
