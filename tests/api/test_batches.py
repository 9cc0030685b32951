"""POST /v1/batches over the real database."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from registry import wake
from tests.registry.batches.submissions import chat_line, line
from tests.world import World

LINES = {"content-type": "application/x-ndjson"}
CHAT = "/v1/chat/completions"


def upload(client: TestClient, *lines: bytes) -> str:
    answer = client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", b"\n".join(lines))})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def of_file(client: TestClient, *lines: bytes, **fields: Any) -> Any:
    body = {"input_file_id": upload(client, *lines), "endpoint": CHAT, "completion_window": "24h", **fields}
    return client.post("/v1/batches", json=body)


def of_lines(client: TestClient, *lines: bytes, **query: str) -> Any:
    return client.post("/v1/batches", params=query, content=b"\n".join(lines), headers=LINES)


def count(world: World, table: str) -> int:
    with world.db.transaction() as session:
        return int(session.scalar(text(f"SELECT count(*) FROM {table}")))  # noqa: S608


def test_a_batch_of_a_file_is_openais_object(acme: TestClient) -> None:
    answer = of_file(acme, chat_line("a"), chat_line("b"), metadata={"k": "v"})
    batch = answer.json()
    assert answer.status_code == 200, answer.text
    assert batch["id"].startswith("batch_")
    assert batch["input_file_id"].startswith("file-")
    assert (batch["object"], batch["status"], batch["endpoint"]) == ("batch", "in_progress", CHAT)
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 0}
    assert batch["expires_at"] - batch["created_at"] == 24 * 3600
    assert batch["in_progress_at"] == batch["created_at"]
    assert (batch["metadata"], batch["errors"], batch["output_file_id"]) == ({"k": "v"}, None, None)
    assert acme.get(f"/v1/batches/{batch['id']}").json() == batch


def test_lines_sent_directly_need_no_file(acme: TestClient, world: World) -> None:
    query = {"completion_window": "2h", "metadata": '{"k": "v"}', "output_expires_after": "7200"}
    answer = of_lines(
        acme, line("a"), line("b", prompt="x"), line("c", messages=[{"role": "user", "content": "y"}]), **query
    )
    batch = answer.json()
    assert answer.status_code == 200, answer.text
    assert (batch["status"], batch["input_file_id"], batch["metadata"]) == ("in_progress", None, {"k": "v"})
    assert batch["expires_at"] - batch["created_at"] == 7200
    with world.db.transaction() as session:
        stored = session.execute(text("SELECT source, endpoint, output_expires_after_s FROM batches")).one()
    assert stored == ("ndjson", "/v1/jobs", 7200)


@pytest.mark.parametrize("make", [of_file, of_lines])
def test_a_bad_line_fails_the_batch_and_is_listed(acme: TestClient, world: World, make: Callable[..., Any]) -> None:
    good = chat_line if make is of_file else line
    answer = make(acme, good("a"), b"", b"{", good("a"))
    batch = answer.json()
    assert (answer.status_code, batch["status"], batch["failed_at"]) == (200, "failed", batch["created_at"])
    assert [(error["line"], error["code"]) for error in batch["errors"]["data"]] == [
        (3, "invalid_json_line"),
        (4, "duplicate_custom_id"),
    ]
    assert batch["errors"]["object"] == "list"
    assert count(world, "jobs") == 0


@pytest.mark.parametrize(
    "options", [{"on_bad_line": "skip"}, {"metadata": {"lorry.on_bad_line": "skip"}}], ids=["field", "metadata"]
)
def test_bad_lines_can_be_left_out(acme: TestClient, world: World, options: dict[str, Any]) -> None:
    batch = of_file(acme, *[chat_line(str(n)) for n in range(19)], b"{", **options).json()
    assert (batch["status"], batch["request_counts"]) == ("in_progress", {"total": 20, "completed": 0, "failed": 1})
    assert batch["lorry"]["bad_lines"] == 1
    assert (count(world, "jobs"), count(world, "batch_bad_lines")) == (19, 1)


def test_a_dry_run_stores_nothing(acme: TestClient, world: World) -> None:
    for answer in (of_file(acme, chat_line("a"), dry_run=True), of_lines(acme, line("a"), dry_run="true")):
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["object"], found["would_run"], found["lines"]) == ("batch.dry_run", True, 1)
        assert found["prompt_tokens"] > 0
    assert (count(world, "jobs"), count(world, "batches")) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"input_file_id": "file-" + "0" * 32}, 404, "input_file_id"),
        ({"input_file_id": "nothing"}, 404, "input_file_id"),
        ({"input_file_id": None}, 400, "input_file_id"),
        ({"endpoint": "/v1/embeddings"}, 400, "endpoint"),
        ({"completion_window": "8d"}, 400, "completion_window"),
        ({"completion_window": "30m"}, 400, "completion_window"),
        ({"metadata": {"k": "a\0b"}}, 400, "metadata"),
        ({"metadata": {f"k{n}": "v" for n in range(17)}}, 400, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, 400, "output_expires_after"),
        ({"on_bad_line": "ignore"}, 400, "on_bad_line"),
        ({"webhook_url": "https://127.0.0.1/"}, 400, "webhook_url"),
        ({"model": "Tiny"}, 400, "model"),
    ],
    ids=str,
)
def test_a_bad_field_is_refused_by_name(
    acme: TestClient, world: World, fields: dict[str, Any], status: int, param: str
) -> None:
    answer = of_file(acme, chat_line(), **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    assert count(world, "batches") == 0


@pytest.mark.parametrize(
    "query",
    [
        {"completion_window": "1m"}, {"on_bad_line": "x"}, {"metadata": "[1]"}, {"metadata": "{"},
        {"metadata": '{"k": 1}'}, {"output_expires_after": "soon"}, {"output_expires_after": "9" * 30},
        {"dry_run": "yes"}, {"endpoint": "/v1/jobs"}, {"priority": "1"}, {"webhook_url": "http://127.0.0.1/"},
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_query_is_refused_by_name(acme: TestClient, world: World, query: dict[str, str]) -> None:
    answer = of_lines(acme, line(), **query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, next(iter(query))), answer.text
    assert count(world, "batches") == 0


def test_a_repeated_query_and_a_query_beside_a_json_body_are_refused(acme: TestClient) -> None:
    twice = acme.post("/v1/batches?dry_run=true&dry_run=false", content=line(), headers=LINES)
    assert (twice.status_code, twice.json()["error"]["param"]) == (400, "dry_run")
    body = {"input_file_id": upload(acme, chat_line()), "endpoint": CHAT}
    beside = acme.post("/v1/batches?dry_run=true", json=body)
    assert (beside.status_code, beside.json()["error"]["code"]) == (400, "invalid_value")


def test_a_file_of_another_tenant_answers_like_a_missing_one(
    acme: TestClient, as_tenant: Callable[[str], TestClient]
) -> None:
    foreign = upload(as_tenant("globex"), chat_line())
    answers = [
        acme.post("/v1/batches", json={"input_file_id": file, "endpoint": CHAT})
        for file in (foreign, "file-" + "0" * 32)
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json()["error"] == answers[1].json()["error"]


def test_the_output_of_a_batch_is_no_input(acme: TestClient, world: World) -> None:
    batch = of_file(acme, chat_line()).json()["id"]
    insert = text("""
        INSERT INTO files (id, tenant_id, purpose, content, filename, bytes, batch_id)
        SELECT uuidv7(), tenant_id, 'batch_output', 'output', 'x', 0, id FROM batches
        RETURNING replace(id::text, '-', '')
    """)
    with world.db.transaction() as session:
        output = session.scalar(insert)
    answer = acme.post("/v1/batches", json={"input_file_id": f"file-{output}", "endpoint": CHAT})
    assert batch
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input_file_id")


def test_the_dispatcher_is_woken_after_the_commit(acme: TestClient, database_url: str) -> None:
    with wake.listen(database_url, wake.QUEUED) as listener:
        of_lines(acme, line())
        assert [notice.channel for notice in listener.notifies(timeout=5, stop_after=1)] == [wake.QUEUED]


@pytest.mark.parametrize("given", ["text/plain", "application/jsonl", "multipart/form-data; boundary=x"])
def test_other_bodies_are_not_taken(acme: TestClient, given: str) -> None:
    answer = acme.post("/v1/batches", content=line(), headers={"content-type": given})
    assert answer.status_code == 415


def test_compressed_lines_are_not_taken(acme: TestClient) -> None:
    answer = acme.post("/v1/batches", content=line(), headers={**LINES, "content-encoding": "gzip"})
    assert answer.status_code == 415


def test_an_input_without_lines_fails(acme: TestClient) -> None:
    for answer in (of_file(acme, b""), of_file(acme, b"\n\n"), of_lines(acme, b"")):
        batch = answer.json()
        assert (answer.status_code, batch["status"]) == (200, "failed"), answer.text
        assert [(error["line"], error["code"]) for error in batch["errors"]["data"]] == [(None, "empty_file")]


def test_no_text_of_a_line_leaves_as_a_server_error(acme: TestClient) -> None:
    odd = (r"\u0000", r"\ud800", r"\udfff\ud800", r"\u0000\ud800", "\u2028", "\x7f", "e\u0301", "\u202e")
    for place in ("custom_id", "document", "model", "stop", "seed", "metadata"):
        for value in odd:
            raw = json.dumps({"custom_id": "a", "model": "Tiny", "document": "x", place: "PLACE"})
            answer = of_lines(acme, raw.replace("PLACE", value).encode())
            assert answer.status_code == 200, (place, value)
            assert answer.json()["status"] in ("failed", "in_progress")
