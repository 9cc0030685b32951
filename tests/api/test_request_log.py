"""What is logged, and that tenants' text is in no line and in no error."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from sqlalchemy import event
from sqlalchemy.exc import DataError, StatementError
from starlette.testclient import TestClient

from registry.logs import configure_logs
from tests.world import World

CANARY = "카나리아-canary"
QUOTED = "%EC%B9%B4%EB%82%98%EB%A6%AC%EC%95%84-canary"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Everything that the process logs, at the most talkative level, in the form that it has in production."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    configure_logs("DEBUG")
    handler = root.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    written = io.StringIO()
    handler.setStream(written)
    logging.getLogger("httpx2").setLevel("WARNING")  # the test's own client, which logs the addresses it calls
    yield written
    root.handlers[:], root.level = before, level
    structlog.reset_defaults()


def test_a_request_is_one_line_of_ids_and_numbers(acme: TestClient, lines: io.StringIO) -> None:
    answer = acme.get("/v1/jobs/job_00000000000000000000000000000000")
    logged = [json.loads(line) for line in lines.getvalue().splitlines() if '"event": "request"' in line]
    assert len(logged) == 1
    assert logged[0]["request_id"] == answer.headers["x-request-id"]
    assert (logged[0]["route"], logged[0]["status"], logged[0]["tenant"]) == ("/v1/jobs/{job_id}", 404, "acme")
    assert "job_0000" not in json.dumps(logged[0])


BODIES = [
    {"model": "Tiny", "document": CANARY, "custom_id": CANARY, "metadata": {CANARY: CANARY}, "stop": CANARY},
    {"model": CANARY, "document": CANARY},
    {"model": "Tiny", "document": CANARY, "base_model": CANARY},
    {"model": "Tiny", "document": CANARY, CANARY: 1},
    {"model": "Tiny", "document": CANARY, "metadata": {CANARY: 1}},
    {"model": "Tiny", "document": CANARY, "max_tokens": CANARY, "temperature": CANARY, "seed": CANARY},
    {"model": "Tiny", "messages": [{"role": CANARY, "content": CANARY}]},
    {"model": "Tiny", "messages": [{"role": "user", "content": CANARY, CANARY: CANARY}]},
    {"model": "Tiny", "document": CANARY * 500},
    {"model": "Tiny", "document": CANARY, "custom_id": CANARY + "\0"},
    {"model": "Tiny", "document": CANARY, "max_tokens": 10**9},
    {"model": "Tiny", "document": CANARY, "stop": [CANARY] * 99},
]


def test_tenants_text_is_in_no_log_line_and_no_error(acme: TestClient, lines: io.StringIO) -> None:
    answers = [acme.post("/v1/jobs", json=body) for body in BODIES]
    answers.append(acme.post("/v1/jobs", content=f'{{"document": "{CANARY}"'.encode(), headers=_JSON))
    answers += [acme.get(f"/v1/{part}/{QUOTED}") for part in ("jobs", "models", "adapters", "nowhere")]
    answers += [acme.get(f"/v1/jobs?after={QUOTED}&status={QUOTED}&limit={QUOTED}&x={QUOTED}")]
    answers += [acme.post(f"/v1/adapters/{QUOTED}/activate", json={"version": 1, CANARY: CANARY})]
    answers += [acme.get("/v1/jobs", headers={"authorization": "Bearer canary", "x-request-id": "canary"})]
    assert answers[0].status_code == 202
    assert all(400 <= answer.status_code < 500 for answer in answers[1:]), [a.status_code for a in answers]
    assert not [answer.text for answer in answers[1:] if "canary" in answer.text]
    written = lines.getvalue()
    assert '"event": "request"' in written
    assert "canary" not in written


def test_a_database_error_that_quotes_text_is_neither_logged_nor_answered(acme: TestClient, lines: io.StringIO) -> None:
    engine = acme.app.state.services.database.engine  # type: ignore[attr-defined]
    quoting = ValueError(CANARY)
    failures = [(DataError(CANARY, [CANARY], quoting), 400), (StatementError(CANARY, CANARY, [], quoting), 500)]
    for error, status in failures:

        def refuse(*_: object, error: Exception = error) -> None:
            raise error

        event.listen(engine, "before_cursor_execute", refuse)
        answer = acme.get("/v1/jobs")
        event.remove(engine, "before_cursor_execute", refuse)
        assert answer.status_code == status
        assert "canary" not in answer.text
    written = lines.getvalue()
    assert '"error": "StatementError"' in written
    assert "canary" not in written


def test_a_job_is_logged_by_no_one_when_it_is_stored(acme: TestClient, world: World, lines: io.StringIO) -> None:
    assert acme.post("/v1/jobs", json={"model": "Tiny", "prompt": CANARY}).status_code == 202
    assert acme.get("/v1/jobs").json()["data"][0]["status"] == "queued"
    assert "canary" not in lines.getvalue()


_JSON = {"content-type": "application/json"}
