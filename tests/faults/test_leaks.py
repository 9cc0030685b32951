"""Tenants' texts and secrets stay where they belong, also when things go wrong: row 52 of the plan.

The checker reads every log and the broker's file after every row; here are the answers and pages of the outside.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from registry import ids, metrics
from tests.e2e.crew import eventually
from tests.faults.calls import call
from tests.faults.checker import SECRETS, leaks, settled
from tests.faults.cluster import Cluster
from tests.faults.load import CANARY
from tests.registry.test_flowerconfig import PASSWORD, flower

AUTH = ("ops", PASSWORD)

BAD: list[dict[str, str | int]] = [
    {"model": "tickets", "document": CANARY, CANARY: 1},
    {"model": CANARY, "document": "x"},
    {"model": "tickets", "document": f"{CANARY}\x00"},
    {"model": "tickets", "document": f"{CANARY} " * 200},
    {"model": "tickets", "document": CANARY, "custom_id": CANARY * 100},
    {"model": "tickets", "document": CANARY, "webhook_url": f"http://127.0.0.1/{CANARY}"},
]


def test_row_52_no_answer_log_key_or_statement_holds_a_tenants_text(cluster: Cluster) -> None:
    url, key = cluster.api(), cluster.world.key("acme")
    for body in BAD:
        answer = call(f"{url}/v1/jobs", key, body)
        assert 400 <= answer.status < 500
        if CANARY not in (body["model"], *body):  # an unknown name is repeated to the one who sent it
            assert CANARY.encode() not in answer.body
    for path in ("/v1/jobs/job_nothing", f"/v1/nothing/{CANARY}"):
        assert call(f"{url}{path}", key).status == 404
    cluster.load.submit(200)
    seen: list[str] = []
    with cluster.superuser() as connection:  # others are not shown what the workers' connections do

        def look() -> bool:
            seen.extend(str(row[0]) for row in connection.execute("SELECT query FROM pg_stat_activity"))
            return any("UPDATE jobs" in query for query in seen)

        eventually(look)
    assert not SECRETS.search("\n".join(seen).encode())
    with cluster.redis as client:
        assert not any(SECRETS.search(name) for name in client.keys("*"))


PAGES = ("/workers", "/tasks", "/broker", "/api/tasks", "/api/workers", "/api/queues/length", "/metrics")


def test_row_52_nothing_that_an_operator_watches_holds_a_tenants_text(cluster: Cluster) -> None:
    """Celery's events, Flower's pages and API, every process's metrics."""
    shown: list[str] = []
    api, worker = cluster.api(LORRY_METRICS_PORT="0"), cluster.victim("12", LORRY_METRICS_PORT="0")
    with flower(cluster.folder / "flower-52.log", **cluster.addresses) as client, watched(cluster) as events:
        jobs = cluster.load.submit(100)
        answers = [call(f"{api}/v1/jobs", cluster.world.key("acme"), body) for body in BAD]
        settled(cluster)
        wire_id = ids.to_wire("job", jobs[-1])
        eventually(lambda: wire_id in client.get("/api/tasks", auth=AUTH).text)
        shown += [client.get(page, auth=AUTH).raise_for_status().text for page in PAGES]
        shown += [client.get(f"/task/{wire_id}", auth=AUTH).raise_for_status().text, json.dumps(events, default=str)]
    for address in metrics.addresses(cluster.settings).values():
        with urlopen(address) as page:  # noqa: S310 - our own processes
            shown.append(page.read().decode())
    assert {answer.status // 100 for answer in answers} == {4}
    assert any("task-succeeded" in text for text in shown), "there was something to see"
    assert sum("lorry_" in text for text in shown) >= 2, "of the API and of the worker"
    assert [text for text in shown if SECRETS.search(text.encode())] == []
    worker.terminate()
    assert worker.exit_code() == 0


@contextmanager
def watched(cluster: Cluster) -> Iterator[list[dict[str, Any]]]:
    """Every event that Celery publishes meanwhile."""
    events: list[dict[str, Any]] = []
    ended = threading.Event()

    def watch() -> None:
        with cluster.celery.connection() as connection:
            receiver = cluster.celery.events.Receiver(connection, handlers={"*": events.append})
            while not ended.is_set():
                with suppress(TimeoutError):
                    receiver.capture(limit=None, timeout=0.5, wakeup=False)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield events
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("secret", [CANARY, "whsec_" + "a" * 20, "lorry_ab12cd34_" + "b" * 43])
def test_the_search_for_leaks_finds_one(cluster: Cluster, secret: str) -> None:
    planted = Path(cluster.folder / "planted.log")
    planted.write_text(f"something went wrong with {secret}\n")
    try:
        assert len(list(leaks(cluster))) == 1
    finally:
        planted.unlink()
