"""The one way out to receivers: a name is looked up once, every address is checked, only these are connected to.

No redirects, no proxies, no cookies, no kept connections, no second look-up. A receiver's answer counts by its status;
of its body up to 64 kB are read and dropped, so that nothing it says can reach a log.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from registry.webhooks.schedule import Answer
from registry.webhooks.targets import DNS_S, RefusedTarget, Resolve, Target, TargetRules, look_up

CONNECT_S: Final = 5.0
ATTEMPT_S: Final = 15.0
DRAIN_S: Final = 2.0
"""How long the body of an answer is waited for: the status has said everything."""
MAX_READ: Final = 64 * 1024
_PIECE: Final = 16 * 1024
_LOOKUP_THREADS: Final = 64
_LONGEST_DATE_S: Final = 30 * 24 * 3600.0


class Egress:
    """Posts from any thread; one event loop on a thread of its own does the waiting for all of them."""

    def __init__(self, rules: TargetRules, *, resolve: Resolve = look_up, tls: ssl.SSLContext | None = None) -> None:
        self._rules = rules
        self._resolve = resolve
        self._tls = tls or ssl.create_default_context()
        # A resolver that hangs holds its thread for longer than we wait: the loop's own few would soon all hang.
        self._lookups = ThreadPoolExecutor(_LOOKUP_THREADS, thread_name_prefix="egress-dns")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="egress", daemon=True)
        self._thread.start()

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """One attempt: at most 15 s by the clock. Never raises; whatever goes wrong is the answer's reason."""
        return asyncio.run_coroutine_threadsafe(self._attempt(url, headers, body), self._loop).result()

    def close(self) -> None:
        """Stop the loop; attempts under way must have ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        self._loop.close()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    async def _attempt(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        begun_s = time.monotonic()
        code, reason, retry_after_s = None, None, None
        try:
            async with asyncio.timeout(ATTEMPT_S):
                target = self._rules.parse(url)
                addresses = await self._checked(target)
                code, retry_after_s = await self._send(target, addresses, headers, body)
        except Exception as error:  # noqa: BLE001
            # A receiver can make the client library fail in any way; none of them may cost the delivery its record.
            reason = _reason(error)
        return Answer(code, reason, (time.monotonic() - begun_s) * 1000, retry_after_s)

    async def _checked(self, target: Target) -> Sequence[str]:
        """The target's addresses. Raises RefusedTarget unless all are allowed, OSError."""
        look = self._loop.run_in_executor(self._lookups, self._resolve, target.host, target.port)
        try:
            addresses = await asyncio.wait_for(look, DNS_S)
        except TimeoutError:
            raise RefusedTarget("dns_timeout") from None
        self._rules.check_addresses(addresses)
        return addresses

    async def _send(
        self, target: Target, addresses: Sequence[str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, float | None]:
        connector = aiohttp.TCPConnector(
            resolver=_Pinned(addresses),
            use_dns_cache=False,
            force_close=True,
            ssl=self._tls,
            socket_factory=_guard(addresses),
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                trust_env=False,
                auto_decompress=False,
                read_bufsize=_PIECE,
                skip_auto_headers=("accept-encoding",),
            ) as client,
            client.post(_exact(target), data=body, headers=dict(headers), allow_redirects=False) as answer,
        ):
            await _drain(answer)
            return answer.status, _retry_after(answer.headers.get("retry-after"))


class _Pinned(AbstractResolver):
    """Answers with the checked addresses, whatever the name: nothing is looked up a second time."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _guard(addresses: Sequence[str]) -> Any:
    """Makes the sockets, and none to an address that was not checked: an address in the URL meets no resolver."""
    allowed = {_plain(address) for address in addresses}

    def make(info: tuple[Any, ...]) -> socket.socket:
        family, kind, proto, _, address = info
        if _plain(address[0]) not in allowed:
            raise RefusedTarget("address_refused")
        made = socket.socket(family, kind, proto)
        made.setblocking(False)
        # What an endless answer can pour into us before we hang up.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MAX_READ // 2)
        return made

    return make


def _plain(address: str) -> str:
    return str(ipaddress.ip_address(address.partition("%")[0]))


def _exact(target: Target) -> URL:
    """The request's URL for aiohttp, from parts that our own parser took apart: it parses nothing again."""
    path, _, query = target.path.partition("?")
    return URL.build(
        scheme=target.scheme, host=target.host, port=target.port, path=path or "/", query_string=query, encoded=True
    )


async def _drain(answer: aiohttp.ClientResponse) -> None:
    """Take up to 64 kB of the body, so that a polite receiver sees its answer taken; then hang up."""
    left = MAX_READ
    with suppress(TimeoutError, aiohttp.ClientError):
        async with asyncio.timeout(DRAIN_S):
            while left > 0 and (piece := await answer.content.read(min(left, _PIECE))):
                left -= len(piece)


def _retry_after(value: str | None) -> float | None:
    """Seconds of a `Retry-After`, in either of its forms; None for nonsense."""
    if value is None or len(value) > 64:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return min(float(value.strip()[:10]), _LONGEST_DATE_S)
    try:
        return min(max(0.0, parsedate_to_datetime(value).timestamp() - time.time()), _LONGEST_DATE_S)
    except (ValueError, TypeError, OverflowError):
        return None


def _reason(error: Exception) -> str:
    """A fixed code for the log, never the exception's words: they may quote the URL."""
    if isinstance(error, RefusedTarget):
        return error.reason
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "connect_timeout"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "dns_failed"
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return "tls_failed"
    if isinstance(error, aiohttp.ClientConnectorError):
        return "connect_failed"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.http_exceptions.HttpProcessingError | ValueError):
        return "bad_answer"
    return "connection_lost" if isinstance(error, OSError | aiohttp.ClientError) else "failed"
