"""Tenants' texts and secrets stay where they belong, also when things go wrong: row 52 of the plan.

The checker reads every log and the broker's file after every row; here are the answers and pages of the outside.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.crew import eventually
from tests.faults.calls import call
from tests.faults.checker import SECRETS, leaks
from tests.faults.cluster import Cluster
from tests.faults.load import CANARY

BAD = [
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


@pytest.mark.parametrize("secret", [CANARY, "whsec_" + "a" * 20, "lorry_ab12cd34_" + "b" * 43])
def test_the_search_for_leaks_finds_one(cluster: Cluster, secret: str) -> None:
    planted = Path(cluster.folder / "planted.log")
    planted.write_text(f"something went wrong with {secret}\n")
    try:
        assert len(list(leaks(cluster))) == 1
    finally:
        planted.unlink()
