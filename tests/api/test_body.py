"""Bodies that break servers: each is a 4xx with a name, in the one form."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import httpx2
import pytest
from starlette.testclient import TestClient

from api import body
from registry.settings import Settings
from tests.api.live import LiveApi
from tests.world import World

JSON = {"content-type": "application/json"}
HEAD = b'{"model":"Tiny","document":'


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'"text"', "invalid_json"),
        (b"\xef\xbb\xbf{}", "invalid_json"),
        (b"\xff\xfe{\x00}\x00", "invalid_text"),
        (HEAD + b'"\xed\xa0\x80"}', "invalid_text"),
        (HEAD + b'"\\u0000"}', "invalid_text"),
        (HEAD + b'"\\ud800"}', "invalid_text"),
        (HEAD + b'"x","metadata":{"\\ud800":"x"}}', "invalid_text"),
        (HEAD + b'"x","metadata":{"k":"\\u0000"}}', "invalid_text"),
        (HEAD + b'"x","custom_id":"\\udfff"}', "invalid_text"),
        (HEAD + b'"x","\\ud800":1}', "invalid_text"),
        (HEAD + b'"x","temperature":NaN}', "invalid_json"),
        (HEAD + b'"x","temperature":-Infinity}', "invalid_json"),
        (HEAD + b'"x","temperature":1e400}', "invalid_json"),
        (HEAD + b'"x","seed":' + b"9" * 5000 + b"}", "invalid_json"),
        (HEAD + b'"x","document":"y"}', "invalid_json"),
        (HEAD + b'"x","metadata":{"a":"1","a":"2"}}', "invalid_json"),
        (HEAD + b"[" * 100_000, "invalid_json"),
        (HEAD + b'{"a":' * 20_000, "invalid_json"),
        (HEAD + b"[]," * 150_000, "invalid_json"),
        (HEAD + b'"' + b'\\"' * 500_000, "invalid_json"),
    ],
    ids=range(23),
)
def test_text_that_breaks_is_refused_with_a_name(acme: TestClient, raw: bytes, code: str) -> None:
    answer = acme.post("/v1/jobs", content=raw, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.elapsed.total_seconds() < 2


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/json; charset=utf-16"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_another_kind_of_body_is_415(acme: TestClient, headers: dict[str, str]) -> None:
    answer = acme.post("/v1/jobs", content=b"{}", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_a_charset_of_utf_8_is_welcome(acme: TestClient) -> None:
    text = json.dumps({"model": "Tiny", "document": "x"})
    answer = acme.post("/v1/jobs", content=text, headers={"content-type": 'Application/JSON; charset="UTF-8"'})
    assert answer.status_code == 202


@pytest.fixture(scope="module")
def live(settings: Settings, database_url: str) -> Iterator[LiveApi]:
    with LiveApi(settings.model_copy(update={"max_body_bytes": 4096})) as running:
        yield running


def test_a_body_that_says_it_is_too_large_is_refused_unread(live: LiveApi, world: World) -> None:
    head = f"content-type: application/json\r\ncontent-length: {10**12}\r\n"
    assert raw_answer(live, world.key(), head, b"").startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_is_cut_off_at_the_limit(live: LiveApi, world: World) -> None:
    head = "content-type: application/json\r\ntransfer-encoding: chunked\r\n"
    # No last chunk: an answer that waited for the end would never come.
    answer = raw_answer(live, world.key(), head, (b"400\r\n" + b" " * 1024 + b"\r\n") * 5)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"request_too_large"' in answer


def test_a_client_that_goes_on_sending_still_reads_its_413(live: LiveApi, world: World) -> None:
    chunks = (b" " * 65536 for _ in range(100))
    headers = {"authorization": f"Bearer {world.key()}", **JSON}
    answer = httpx2.post(f"{live.url}/v1/jobs", content=chunks, headers=headers, timeout=5)
    assert answer.status_code == 413
    answer = httpx2.post(f"{live.url}/v1/jobs", content=b" " * 6_553_600, headers=headers, timeout=5)
    assert answer.status_code == 413


def test_a_head_without_end_is_refused(live: LiveApi) -> None:
    with socket.create_connection(("127.0.0.1", live.port), timeout=5) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 40_000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 4")


def test_a_body_that_trickles_is_given_up(live: LiveApi, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_PATIENCE_S", 0.2)
    head = "content-type: application/json\r\ncontent-length: 100\r\n"
    assert raw_answer(live, world.key(), head, b"{").startswith(b"HTTP/1.1 408 ")


def raw_answer(live: LiveApi, key: str, head: str, sent: bytes) -> bytes:
    """What comes back for bytes put on the wire as they are, up to the end of the answer's body."""
    request = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n{head}\r\n".encode()
    with socket.create_connection(("127.0.0.1", live.port), timeout=5) as connection:
        connection.sendall(request + sent)
        answer = b""
        while not answer.endswith(b"}"):
            answer += connection.recv(65536)
    return answer
