"""Flower as `lorry up` starts it: who may look, what the broker page lists, and that a job is found by its id."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from httpx2 import Client, TransportError
from sqlalchemy import text

from api.cli.processes import CODE_DIR, FLOWER
from registry import ids
from registry.db import Database
from registry.embedded.launch import Launch
from registry.embedded.ports import free_port
from registry.queues import DELIVERIES, RUN_JOB, queue, queue_name, send_jobs
from registry.settings import child_environment
from tests.world import World

PASSWORD = "wheelbarrow"
DEADLINE_S = 30.0


@contextmanager
def flower(log: Path, **variables: str) -> Iterator[Client]:
    """A running Flower and a client of it that has no credentials yet."""
    port = free_port()
    environment = child_environment(**{"LORRY_FLOWER_PORT": str(port), "LORRY_FLOWER_PASSWORD": PASSWORD, **variables})
    launch = Launch("flower", FLOWER.argv())
    with log.open("wb") as output:
        process = subprocess.Popen(
            launch.argv, cwd=CODE_DIR, env=environment, stdout=output, stderr=output, **launch.popen_options()
        )
    try:
        with Client(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as client:
            wait_until(lambda: healthy(client) or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield client
    finally:
        process.terminate()
        process.wait(DEADLINE_S)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, database_url: str, broker_url: str) -> Iterator[Client]:
    """One Flower for the tests that only look at it; no worker is ever online."""
    log = tmp_path_factory.mktemp("flower") / "log"
    with flower(log, LORRY_DATABASE_URL=database_url, LORRY_BROKER_URL=broker_url) as client:
        yield client


def healthy(client: Client) -> bool:
    try:
        return bool(client.get("/healthcheck").status_code == 200)
    except TransportError:
        return False


def wait_until(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline_s, "nothing happened before the deadline"
        time.sleep(0.05)


def messages(client: Client) -> dict[str, int | None]:
    """Rows of the broker page by name."""
    answer = client.get("/api/queues/length", auth=("ops", PASSWORD))
    assert answer.status_code == 200
    return {row["name"]: row["messages"] for row in answer.json()["active_queues"]}


def wire_ids(count: int) -> list[str]:
    return [ids.to_wire("job", ids.new_id()) for _ in range(count)]


@pytest.mark.parametrize("path", ["/", "/workers", "/tasks", "/broker", "/api/workers", "/api/queues/length"])
def test_pages_ask_for_the_password(running: Client, path: str) -> None:
    assert running.get(path).status_code == 401
    assert running.get(path, auth=("ops", "wrong")).status_code == 401
    assert running.get(path, auth=("ops", PASSWORD)).status_code == 200


@pytest.mark.parametrize("path", ["/api/task/revoke/job_1", "/api/worker/shutdown/gpu", "/api/task/send-task/x"])
def test_operations_are_refused(running: Client, path: str) -> None:
    answer = running.post(path, auth=("ops", PASSWORD), json={})

    assert answer.status_code == 403
    assert "Read only" in answer.text


def test_it_listens_on_loopback_only(running: Client) -> None:
    port = running.base_url.port
    listening = [c.laddr for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port]

    assert [address.ip for address in listening] == ["127.0.0.1"]


def test_broker_page_lists_every_deployment_without_a_worker(running: Client, world: World, celery: Celery) -> None:
    world.deployment("Tiny-r16", "Tiny", max_lora_rank=16)
    for _ in range(3):
        world.job("acme", model="Tiny")
    world.pick(2)
    send_jobs(celery, "Tiny", wire_ids(2))

    assert messages(running) == {
        DELIVERIES: 0,
        "infer.Tiny": 2,
        "infer.Tiny (backlog)": 3,
        "infer.Tiny-r16": 0,
        "infer.Tiny-r16 (backlog)": 0,
    }
    page = running.get("/broker", auth=("ops", PASSWORD)).text
    assert "infer.Tiny-r16 (backlog)" in page


def test_broker_page_counts_a_hundred_thousand_jobs(running: Client, world: World, system_db: Database) -> None:
    job = world.job("acme")
    with system_db.transaction() as session:
        session.execute(
            text("""INSERT INTO jobs (id, tenant_id, deployment, model) SELECT gen_random_uuid(), tenant_id, deployment,
                    model FROM jobs CROSS JOIN generate_series(2, 100000) WHERE id = :id"""),
            {"id": job},
        )

    begun_s = time.monotonic()
    assert messages(running)["infer.Tiny (backlog)"] == 100_000
    assert time.monotonic() - begun_s < 3, "the page fell back to what Redis knows"


def test_redis_rows_stay_when_the_database_does_not_answer(tmp_path: Path, broker_url: str, celery: Celery) -> None:
    send_jobs(celery, "Tiny", wire_ids(2))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        # It accepts connections and never says a word: worse than a closed port, because nothing fails at once.
        url = f"postgresql+psycopg://lorry@127.0.0.1:{mute.getsockname()[1]}/lorry"
        with flower(tmp_path / "log", LORRY_DATABASE_URL=url, LORRY_BROKER_URL=broker_url) as client:
            assert messages(client) == {DELIVERIES: 0, "infer.Tiny": 2, "infer.Tiny (backlog)": None}
            assert client.get("/broker", auth=("ops", PASSWORD)).status_code == 200


def test_a_job_is_found_by_its_id(tmp_path: Path, database_url: str, broker_url: str, celery: Celery) -> None:
    @celery.task(name=RUN_JOB)  # type: ignore[untyped-decorator]
    def run_job(_: str) -> None:
        """Done at once."""

    celery.conf.task_queues = [queue(queue_name("Tiny"))]
    (wire_id,) = wire_ids(1)

    def found() -> dict[str, Any]:
        answer = client.get(f"/api/task/info/{wire_id}", auth=("ops", PASSWORD))
        return dict(answer.json()) if answer.status_code == 200 else {}

    def succeeded() -> bool:
        # Events sent before Flower listens are lost: the message is repeated until one is seen.
        send_jobs(celery, "Tiny", [wire_id])
        return found().get("state") == "SUCCESS"

    with (
        flower(tmp_path / "log", LORRY_DATABASE_URL=database_url, LORRY_BROKER_URL=broker_url) as client,
        start_worker(celery, pool="solo", perform_ping_check=False),
    ):
        wait_until(succeeded)
        assert found()["args"] == "()"
        assert client.get(f"/task/{wire_id}", auth=("ops", PASSWORD)).status_code == 200


@pytest.mark.parametrize("password", ["", "비밀번호"])
def test_it_does_not_start_without_a_usable_password(tmp_path: Path, broker_url: str, password: str) -> None:
    environment = child_environment(LORRY_FLOWER_PASSWORD=password, LORRY_BROKER_URL=broker_url)
    ended = subprocess.run(
        FLOWER.argv(), cwd=CODE_DIR, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )

    assert ended.returncode != 0
    assert "set LORRY_FLOWER_PASSWORD" in ended.stderr
