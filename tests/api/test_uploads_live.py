"""Uploads and lines over real sockets: cut, slow, lying about their length, too large to be held in memory."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from api import body
from registry.settings import Settings
from tests.api.live import LiveApi
from tests.e2e.crew import eventually
from tests.registry.batches.submissions import line
from tests.world import World

FORM_HEAD = (
    b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
)
FORM_END = b"\r\n--x--\r\n"
TYPES = {"/v1/files": "multipart/form-data; boundary=x", "/v1/batches": "application/x-ndjson"}


class Client:
    """A tenant that writes its requests byte by byte."""

    def __init__(self, port: int, key: str) -> None:
        self._port = port
        self._key = key

    def open(self, path: str, length: int) -> socket.socket:
        """A connection on which the head has been sent."""
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._key}\r\n"
        head += f"Content-Type: {TYPES[path.partition('?')[0]]}\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode())
        return connection

    def post(self, path: str, blocks: Iterator[bytes]) -> tuple[int, dict[str, Any]]:
        """A whole request whose body is made as it is sent; status and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        try:
            headers = {"authorization": f"Bearer {self._key}", "content-type": TYPES[path.partition("?")[0]]}
            connection.request("POST", path, blocks, headers, encode_chunked=True)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@pytest.fixture
def api(world: World, settings: Settings) -> Iterator[LiveApi]:
    world.base()
    with LiveApi(settings) as live:
        yield live


@pytest.fixture
def client(api: LiveApi, world: World) -> Client:
    return Client(api.port, world.key("acme"))


def stored(world: World) -> tuple[int, int, int]:
    """Files, batches and jobs."""
    query = "SELECT (SELECT count(*) FROM files), (SELECT count(*) FROM batches), (SELECT count(*) FROM jobs)"
    with world.db.transaction() as session:
        return tuple(session.execute(text(query)).one())


def bytes_left(settings: Settings) -> list[Path]:
    """Bytes on disk that belong to no file."""
    return list((settings.store_dir / "files").glob(".new-*"))


def status_of(connection: socket.socket) -> int | None:
    """The answer's status; None when the server hung up without one."""
    with connection, contextlib.suppress(ConnectionError):
        head = connection.recv(4096)
        return int(head.split(b" ")[1]) if head else None
    return None


@pytest.mark.parametrize("end", ["hang up", "no closing boundary", "shorter than said"])
def test_a_cut_upload_leaves_nothing(client: Client, world: World, settings: Settings, end: str) -> None:
    sent = FORM_HEAD + b"x" * 100_000
    connection = client.open("/v1/files", len(sent) if end == "no closing boundary" else len(sent) + 1000)
    connection.sendall(sent)
    if end == "no closing boundary":
        assert status_of(connection) == 400
    else:
        if end == "shorter than said":
            connection.shutdown(socket.SHUT_WR)
        connection.close()
    eventually(lambda: bytes_left(settings) == [], within_s=10)
    assert stored(world) == (0, 0, 0)


def test_lines_that_are_cut_leave_nothing(client: Client, world: World) -> None:
    lines = b"\n".join(line(str(number)) for number in range(2000))
    connection = client.open("/v1/batches", len(lines) + 1)
    connection.sendall(lines)
    connection.close()
    # The next request is served after the server has noticed, and finds nothing of the first.
    assert client.post("/v1/batches", iter([line("a")]))[1]["status"] == "in_progress"
    assert stored(world) == (0, 1, 1)


@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches"])
def test_a_client_that_trickles_is_cut_and_others_are_served(
    client: Client, world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(body, "_PATIENCE_S", 1.0)
    slow = client.open(path, 1_000_000)
    begun = time.monotonic()
    slow.settimeout(0.1)
    while True:
        with contextlib.suppress(TimeoutError):
            slow.sendall(b"x")
            if answer := slow.recv(4096):
                break
        assert time.monotonic() - begun < 10
        assert client.post("/v1/batches?dry_run=true", iter([line("a")]))[0] == 200
    slow.close()
    assert answer.split(b" ")[1] == b"408"
    assert bytes_left(settings) == []
    assert stored(world) == (0, 0, 0)


def test_one_endless_line_is_one_error_and_is_not_held(client: Client) -> None:
    def blocks() -> Iterator[bytes]:
        yield line("a") + b'\n{"custom_id": "b", "model": "Tiny", "document": "'
        for _ in range(190):
            yield b"x" * 2**20
        yield b'"}\n' + line("c")

    client.post("/v1/batches?dry_run=true", iter([line("warm")]))
    before = rss_mib()
    status, batch = client.post("/v1/batches", blocks())
    assert (status, batch["status"]) == (200, "failed")
    assert [(error["line"], error["code"]) for error in batch["errors"]["data"]] == [(2, "line_too_long")]
    assert rss_mib(highest=True) - before <= 64


def test_an_upload_is_not_held(client: Client, world: World) -> None:
    before = rss_mib()
    status, file = client.post("/v1/files", iter([FORM_HEAD, *[b"x" * 2**20] * 64, FORM_END]))
    assert (status, file["bytes"]) == (200, 64 * 2**20)
    assert rss_mib(highest=True) - before <= 32
    assert stored(world) == (1, 0, 0)


@pytest.mark.long
def test_four_uploads_of_half_a_gigabyte_at_once_are_not_held(client: Client, world: World) -> None:
    def upload(_: int) -> int:
        blocks = (b"x" * 2**16 for _ in range(512 * 16 - 1))
        return client.post("/v1/files", iter_all(FORM_HEAD, blocks, FORM_END))[0]

    before = rss_mib()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(upload, range(4))) == [200] * 4
    assert rss_mib(highest=True) - before <= 128
    assert stored(world) == (4, 0, 0)


def iter_all(head: bytes, blocks: Iterator[bytes], end: bytes) -> Iterator[bytes]:
    yield head
    yield from blocks
    yield end


def rss_mib(*, highest: bool = False) -> float:
    """This process's memory now, which begins the highest anew; or the highest since then."""
    if not highest:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")
    wanted = "VmHWM:" if highest else "VmRSS:"
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(found.split()[1]) / 1024 for found in lines if found.startswith(wanted))
