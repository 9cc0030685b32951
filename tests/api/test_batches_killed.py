"""kill -9 of the API while a batch is being made: the batch is there whole, or there is nothing of it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from benchmarks.batch_lines import document, good_line
from registry.embedded.ports import free_port
from registry.settings import Settings, child_environment
from tests.conftest import plain_url
from tests.e2e.crew import Member, eventually
from tests.world import World

LINES = 8000


class Submission(threading.Thread):
    """POSTs the lines on a thread; the server may die meanwhile. Stops half-way until `go_on`."""

    def __init__(self, port: int, key: str, body: bytes) -> None:
        super().__init__()
        self._port, self._key, self._body = port, key, body
        self.half_sent, self.go_on = threading.Event(), threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/x-ndjson"}
        try:
            connection.request("POST", "/v1/batches", self._halves(), headers, encode_chunked=True)
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()

    def _halves(self) -> Iterator[bytes]:
        half = len(self._body) // 2
        yield self._body[:half]
        self.half_sent.set()
        self.go_on.wait(30)
        yield self._body[half:]


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def copying(database_url: str) -> bool:
    """Whether PostgreSQL has a COPY of ours in hand; asked by the login itself, which sees all of its sessions."""
    with psycopg.connect(plain_url(database_url)) as connection:
        found = connection.execute("SELECT count(*) FROM pg_stat_progress_copy WHERE tuples_processed > 0").fetchone()
    return bool(found != (0,))


@pytest.mark.parametrize("moment", ["while lines come", "in the middle of the COPY", "after the answer"])
def test_a_killed_api_leaves_all_of_a_batch_or_nothing(
    world: World, settings: Settings, database_url: str, tmp_path: Path, moment: str
) -> None:
    world.base("Tiny", max_model_len=8192)
    key, port = world.key("acme"), free_port()
    changes = {
        "LORRY_DATA_DIR": str(settings.data_dir),
        "LORRY_API_PORT": str(port),
        "LORRY_PG_PORT": str(settings.pg_port),
        "LORRY_VALKEY_PORT": str(settings.valkey_port),
    }
    api = Member(["api"], child_environment(**changes), tmp_path / "api.log")
    try:
        eventually(lambda: answers(port))
        body = b"\n".join(good_line(f"line-{n}", document(n)) for n in range(LINES))
        client = Submission(port, key, body)
        client.start()
        assert client.half_sent.wait(30)
        if moment != "while lines come":
            client.go_on.set()
        if moment == "in the middle of the COPY":
            eventually(lambda: copying(database_url), every_s=0.002)
        elif moment == "after the answer":
            client.join()
        api.kill()
        client.go_on.set()
        client.join()
    finally:
        api.close()
    expected = {"while lines come": [0], "in the middle of the COPY": [0, LINES], "after the answer": [LINES]}[moment]
    jobs, inputs, total, spooled = eventually(lambda: counted(world, settings, database_url))
    assert jobs == inputs == total
    assert jobs in expected
    assert spooled == 0


def counted(world: World, settings: Settings, database_url: str) -> tuple[int, int, int, int] | None:
    """Jobs, inputs, lines that batches say they have, spool files; None while the dead API's COPY still runs."""
    if copying(database_url):
        return None
    query = """SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM job_inputs),
                      (SELECT coalesce(sum(total), 0) FROM batches)"""
    with world.db.transaction() as session:
        jobs, inputs, total = session.execute(text(query)).one()
    return jobs, inputs, total, len(list(settings.spool_dir.glob("tmp*")))
