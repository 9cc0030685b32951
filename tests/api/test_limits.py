"""What a tenant over its limits reads, and that nobody else is touched."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from fastapi import FastAPI
from sqlalchemy import text
from starlette.testclient import TestClient

from api.limits import Brake
from registry import quotas
from registry.quotas import Rate
from tests.world import World

JOB = {"model": "Tiny", "document": "The printer jams."}


@pytest.fixture
def limited(world: World) -> Callable[..., None]:
    def set_limits(**limits: int) -> None:
        with world.db.transaction() as session:
            quotas.set_limits(session, "acme", **limits)

    return set_limits


def test_every_answer_to_a_post_tells_the_rate_and_no_other_answer_does(
    acme: TestClient, limited: Callable[..., None]
) -> None:
    limited(posts_per_minute=10)
    posts = [acme.post("/v1/jobs", json=JOB), acme.post("/v1/jobs", json={})]
    assert [post.status_code for post in posts] == [202, 400]
    assert [post.headers["ratelimit"] for post in posts] == ['"tenant-rpm";r=9;t=6', '"tenant-rpm";r=8;t=12']
    for post in posts:
        assert post.headers["ratelimit-policy"] == '"tenant-rpm";q=10;w=60'
        assert post.headers["x-ratelimit-limit-requests"] == "10"
        assert post.headers["x-ratelimit-remaining-requests"] in ("9", "8")
        assert re.fullmatch(r"\d+s", post.headers["x-ratelimit-reset-requests"])
    assert "ratelimit" not in acme.get("/v1/jobs").headers


def test_a_storm_of_one_tenant_is_told_to_wait_and_another_is_not(
    acme: TestClient, as_tenant: Callable[[str], TestClient], world: World, limited: Callable[..., None]
) -> None:
    limited(posts_per_minute=3)
    answers = [acme.post("/v1/jobs", json=JOB) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [202] * 3 + [429] * 3
    refused = answers[-1]
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert refused.headers["ratelimit"].startswith('"tenant-rpm";r=0;t=')
    assert "x-should-retry" not in refused.headers
    assert acme.get("/v1/jobs").status_code == 200
    assert as_tenant("globex").post("/v1/jobs", json=JOB).status_code == 202
    with world.db.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM jobs WHERE tenant_id = 'acme'")) == 3


def test_who_does_not_wait_is_refused_without_the_database_and_who_waits_is_not(
    acme: TestClient, app: FastAPI, limited: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(posts_per_minute=1)
    assert [acme.post("/v1/jobs", json=JOB).status_code for _ in range(2)] == [202, 429]
    with monkeypatch.context() as without_database:
        without_database.setattr(app.state.services, "database", None)
        again = acme.post("/v1/jobs", json=JOB)
    assert (again.status_code, again.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert again.headers["ratelimit"].startswith('"tenant-rpm";r=0;t=')
    limited(posts_per_minute=1000)
    assert acme.get("/v1/jobs").status_code == 200
    deadline_s = time.monotonic() + 5
    while (later := acme.post("/v1/jobs", json=JOB)).status_code == 429:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert later.status_code == 202


def test_a_brake_forgets_and_never_holds_more_than_its_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Brake, "MOST", 2)
    brake, told = Brake(), Rate(60, 0, 60, 1)
    for number in range(3):
        brake.put_on(f"key {number}", "acme", told, 0.0)
    assert brake.refusal("key 2", 0.9) == ("acme", told)
    assert brake.refusal("key 2", 1.0) is None
    assert brake.refusal("key 0", 0.9) is None


def test_a_full_queue_is_worth_waiting_for(acme: TestClient, limited: Callable[..., None]) -> None:
    limited(queued_jobs=1)
    assert acme.post("/v1/jobs", json=JOB).status_code == 202
    full = acme.post("/v1/jobs", json=JOB)
    assert (full.status_code, full.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(full.headers["retry-after"]) <= 120


def test_a_batch_larger_than_the_queue_is_not(acme: TestClient, world: World, limited: Callable[..., None]) -> None:
    limited(queued_jobs=1)
    lines = b"".join(b'{"custom_id": "%d", "model": "Tiny", "document": "x"}\n' % n for n in range(2))
    answer = acme.post("/v1/batches", content=lines, headers={"content-type": "application/x-ndjson"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "insufficient_quota")
    assert answer.headers["x-should-retry"] == "false"
    with world.db.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM jobs")) == 0
        assert session.scalar(text("SELECT count(*) FROM batches")) == 0


def test_bytes_that_are_deleted_are_free_again(acme: TestClient, limited: Callable[..., None]) -> None:
    limited(stored_bytes=10)
    form = {"data": {"purpose": "batch"}, "files": {"file": ("in.jsonl", b"12345678")}}
    first = acme.post("/v1/files", **form)  # type: ignore[arg-type]
    second = acme.post("/v1/files", **form)  # type: ignore[arg-type]
    assert (second.status_code, second.json()["error"]["code"]) == (429, "insufficient_quota")
    assert second.headers["x-should-retry"] == "false"
    acme.delete(f"/v1/files/{first.json()['id']}")
    assert acme.post("/v1/files", **form).status_code == 200  # type: ignore[arg-type]


def test_a_keys_use_is_noted_once_a_minute(acme: TestClient, world: World) -> None:
    def last_used() -> object:
        with world.db.transaction() as session:
            return session.scalars(text("SELECT last_used_at FROM api_keys ORDER BY created_at DESC LIMIT 1")).one()

    assert last_used() is None
    acme.get("/v1/jobs")
    first = last_used()
    assert first is not None
    acme.get("/v1/jobs")
    assert last_used() == first
    with world.db.transaction() as session:
        session.execute(text("UPDATE api_keys SET last_used_at = last_used_at - interval '61 seconds'"))
    acme.get("/v1/jobs")
    assert last_used() > first  # type: ignore[operator]
