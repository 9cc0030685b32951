"""Probes, and what every route answers while the database is away."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest
from fastapi import FastAPI
from sqlalchemy import make_url
from starlette.testclient import TestClient

from api.app import create_app
from registry import migrations
from registry.errors import Unavailable
from registry.settings import Settings
from tests.e2e.crew import eventually
from tests.world import World

KNOWN = migrations._known()
THREADS = 40
"""Of an API process, by Starlette's default."""


def test_a_healthy_process_is_live_and_ready(stranger: TestClient) -> None:
    assert stranger.get("/livez").json() == {"status": "ok"}
    assert stranger.get("/readyz").json() == {"status": "ok"}


def test_a_database_that_lacks_migrations_is_not_ready(stranger: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "_known", lambda: ("9999", *KNOWN))
    answer = stranger.get("/readyz")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


def test_a_later_releases_schema_will_do(stranger: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a rolling upgrade the migrations come first: this release has to go on serving."""
    monkeypatch.setattr(migrations, "_known", lambda: KNOWN[1:])
    assert stranger.get("/readyz").status_code == 200


class Wire:
    """A TCP relay to the database that can be cut, hushed and mended, so that nobody else's database has to stop."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._pairs: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = True
        self._speaks = threading.Event()
        self._speaks.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Drop every connection and take no new one."""
        self._open = False
        for end in self._pairs:
            with suppress(OSError):  # one that its peer has closed already
                end.shutdown(socket.SHUT_RDWR)

    def hush(self) -> None:
        """Keep every connection, take new ones, and pass nothing on until mended."""
        self._speaks.clear()

    def mend(self) -> None:
        self._open = True
        self._speaks.set()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self._open:
                near.close()
                continue
            far = socket.create_connection(self._target)
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._relay, args=(source, sink), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self._speaks.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return


@pytest.fixture
def wire(database_url: str) -> Iterator[Wire]:
    address = make_url(database_url)
    made = Wire(address.host or "127.0.0.1", address.port or 5432)
    yield made
    made.close()


@pytest.fixture
def over_wire(settings: Settings, database_url: str, wire: Wire, world: World) -> Iterator[TestClient]:
    """A client of an API whose only way to the database is the wire."""
    world.base()
    through = make_url(database_url).set(host="127.0.0.1", port=wire.port).render_as_string(hide_password=False)
    app = create_app(settings.model_copy(update={"database_url": through}))
    with TestClient(app, headers={"authorization": f"Bearer {world.key()}"}) as client:
        yield client


BODY = {"model": "Tiny", "document": "x"}
ROUTES = (("POST", "/v1/jobs"), ("GET", "/v1/models"), ("GET", "/readyz"))


def silent(client: TestClient) -> bool:
    assert isinstance(client.app, FastAPI)
    try:
        client.app.state.services.pulse.check()
    except Unavailable:
        return True
    return False


def refused_at_once(client: TestClient) -> None:
    for method, path in ROUTES:
        begun = time.monotonic()
        answer = client.request(method, path, json=BODY if method == "POST" else None)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "2"
        assert time.monotonic() - begun < 1


def test_while_the_database_is_away_routes_answer_503_at_once_and_recover(over_wire: TestClient, wire: Wire) -> None:
    assert over_wire.post("/v1/jobs", json=BODY).status_code == 202
    wire.cut()
    refused_at_once(over_wire)
    assert over_wire.get("/livez").status_code == 200
    wire.mend()
    assert over_wire.post("/v1/jobs", json=BODY).status_code == 202


def test_a_database_that_says_nothing_counts_as_away_though_all_threads_wait_for_it(
    over_wire: TestClient, wire: Wire
) -> None:
    assert over_wire.post("/v1/jobs", json=BODY).status_code == 202
    wire.hush()
    answers: list[int] = []
    ask = partial(over_wire.post, "/v1/jobs", json=BODY)
    stuck = [threading.Thread(target=lambda: answers.append(ask().status_code)) for _ in range(THREADS + 5)]
    for thread in stuck:
        thread.start()
    eventually(lambda: silent(over_wire))
    refused_at_once(over_wire)
    assert over_wire.get("/livez").status_code == 200
    wire.mend()
    for thread in stuck:
        thread.join()
    assert set(answers) <= {202, 503}, "who came before it was known had an answer in the end"
    eventually(lambda: not silent(over_wire))
    assert ask().status_code == 202
