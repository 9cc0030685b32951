"""What is kept of an answer, and for how long."""

from __future__ import annotations

import json

from sqlalchemy import text
from starlette.testclient import TestClient

from tests.api.test_idempotency import JOB
from tests.world import World


def test_kept_secrets_are_sealed(acme: TestClient, world: World) -> None:
    wish = {"name": "mine", "url": "https://hooks.example/y", "event_types": ["job.succeeded"]}
    secret = acme.post("/v1/webhook_endpoints", json=wish, headers={"idempotency-key": "k"}).json()["signing_secret"]
    with world.db.transaction() as session:
        body = session.scalars(text("SELECT body FROM kept_answers")).one()
    assert secret.encode() not in bytes(body)


def test_after_a_day_the_key_is_new(acme: TestClient, world: World) -> None:
    first = acme.post("/v1/jobs", json=JOB, headers={"idempotency-key": "k"}).json()["id"]
    with world.db.transaction() as session:
        kept_s = session.scalars(
            text("SELECT extract(epoch FROM expires_at - created_at)::int FROM kept_answers")
        ).one()
        session.execute(text("UPDATE kept_answers SET expires_at = now()"))
    assert kept_s == 24 * 3600
    assert acme.post("/v1/jobs", json=JOB, headers={"idempotency-key": "k"}).json()["id"] != first


def test_a_refusal_is_not_kept(acme: TestClient, world: World) -> None:
    wanted = JOB | {"model": "soon"}
    assert acme.post("/v1/jobs", json=wanted, headers={"idempotency-key": "k"}).status_code == 404
    world.adapter("acme", "soon")
    assert acme.post("/v1/jobs", json=wanted, headers={"idempotency-key": "k"}).status_code == 202


def test_a_kept_answer_has_no_text_of_the_document(acme: TestClient, world: World) -> None:
    acme.post("/v1/jobs", json=JOB | {"document": "canary-7"}, headers={"idempotency-key": "canary-8"})
    with world.db.transaction() as session:
        kept = session.execute(text("SELECT * FROM kept_answers")).mappings().one()
    assert b"canary" not in json.dumps({name: str(value) for name, value in kept.items()}).encode()
