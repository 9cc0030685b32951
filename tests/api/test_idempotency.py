"""Every POST has its effect once, however often it is sent: with a key, and for clients that retry by themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from httpx2 import Client
from sqlalchemy import text
from starlette.routing import Route
from starlette.testclient import TestClient

from api import webhook_deliveries
from api.idempotency import opened
from registry import idempotency
from registry.ids import to_wire
from registry.secrets import SecretBox
from registry.settings import Settings
from registry.states import State
from registry.webhooks import event_ids
from tests.api.live import LiveApi
from tests.api.routes import routes_of
from tests.hooks import Hooks
from tests.registry.batches.batch_rig import Batches
from tests.world import World

JOB = {"model": "Tiny", "document": "The printer jams."}
LINE = b'{"custom_id": "a", "model": "Tiny", "document": "The printer jams."}\n'
NDJSON = {"content-type": "application/x-ndjson"}
Request = dict[str, Any]


@pytest.fixture
def hooks(world: World, settings: Settings) -> Hooks:
    return Hooks(world, SecretBox(settings))


@pytest.fixture
def requests(
    world: World, hooks: Hooks, adapter_form: Callable[..., dict[str, tuple[str, bytes]]]
) -> dict[str, Request]:
    """A request that succeeds for each POST route whose answer is there at once: where, and what."""
    adapter = world.adapter()
    batches = Batches(world)
    ended = batches.make(2)
    batches.run(ended, fail=[1], succeed=[2])
    batches.dispatch()
    endpoint, _ = hooks.endpoint()
    hooks.finished_job()
    (delivery,) = hooks.deliveries(endpoint)
    at_endpoint = f"/v1/webhook_endpoints/{to_wire('we', endpoint)}"
    return {
        "/v1/jobs": {"json": JOB},
        "/v1/jobs/{job_id}/cancel": {"url": f"/v1/jobs/{to_wire('job', world.job())}/cancel"},
        "/v1/files": {"data": {"purpose": "batch"}, "files": {"file": ("in.jsonl", LINE)}},
        "/v1/batches": {"content": LINE, "headers": NDJSON},
        "/v1/batches/{batch_id}/cancel": {"url": f"/v1/batches/{to_wire('batch', batches.make(2))}/cancel"},
        "/v1/batches/{batch_id}/rerun": {"url": f"/v1/batches/{to_wire('batch', ended)}/rerun"},
        "/v1/adapters": {"data": {"name": "notes"}, "files": adapter_form(seed=5)},
        "/v1/adapters/{adapter}/activate": {
            "url": f"/v1/adapters/{adapter.name}/activate",
            "json": {"version": adapter.version},
        },
        "/v1/webhook_endpoints": {
            "json": {"name": "mine", "url": "https://hooks.example/y", "event_types": ["job.succeeded"]}
        },
        "/v1/webhook_endpoints/{endpoint_id}": {"url": at_endpoint, "json": {"name": "renamed"}},
        "/v1/webhook_endpoints/{endpoint_id}/rotate_secret": {
            "url": f"{at_endpoint}/rotate_secret",
            "json": {"keep_old_secret_active_for_24_hours": False},
        },
        "/v1/webhook_endpoints/{endpoint_id}/deliveries/{delivery_id}/redeliver": {
            "url": f"{at_endpoint}/deliveries/{event_ids.to_wire(delivery.id)}/redeliver"
        },
        "/v1/webhook_endpoints/{endpoint_id}/redeliver": {"url": f"{at_endpoint}/redeliver?since=0&status=all"},
    }


# Their answers come later than their effects; tests of their own are below and in test_chat.py.
LATER = {"/v1/chat/completions", "/v1/completions", "/v1/webhook_endpoints/{endpoint_id}/test"}


def send(client: TestClient, path: str, request: Request, **headers: str) -> Any:
    fields = dict(request)
    own: dict[str, str] = fields.pop("headers", {})
    return client.post(fields.pop("url", path), headers=own | headers, **fields)


def rows(world: World) -> dict[str, int]:
    """How many rows the effects of POSTs have left."""
    tables = ("jobs", "batches", "files", "tenant_adapters", "webhook_endpoints", "webhook_deliveries", "tallies")
    with world.db.transaction() as session:
        return {table: session.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in tables}  # noqa: S608


def test_no_post_route_is_without_idempotency(app: FastAPI, requests: dict[str, Request]) -> None:
    def depends_on(dependant: Dependant) -> bool:
        return dependant.call is opened or any(depends_on(inner) for inner in dependant.dependencies)

    posts = [route for route in app.routes if isinstance(route, Route) and "POST" in (route.methods or ())]
    assert {route.path for route in posts} == requests.keys() | LATER
    assert [route.path for route in posts if not depends_on(route.dependant)] == []  # type: ignore[attr-defined]
    assert {known.path for known in routes_of(app) if known.method in ("PUT", "PATCH")} == set()


def test_every_post_route_replays_its_answer_and_does_nothing_more(
    acme: TestClient, world: World, requests: dict[str, Request]
) -> None:
    for path, request in requests.items():
        first = send(acme, path, request, **{"idempotency-key": '"one key for all"'})
        assert first.is_success, (path, first.text)
        assert "idempotency-replayed" not in first.headers
        left = rows(world)
        second = send(acme, path, request, **{"idempotency-key": "one key for all"})
        assert second.headers.get("idempotency-replayed") == "true", path
        assert (second.status_code, second.json()) == (first.status_code, first.json()), path
        assert second.headers.get("location") == first.headers.get("location"), path
        assert rows(world) == left, path


def test_every_post_route_knows_a_retry_without_a_key(
    acme: TestClient, world: World, requests: dict[str, Request]
) -> None:
    for path, request in requests.items():
        first = send(acme, path, request, **{"x-stainless-retry-count": "0"})
        left = rows(world)
        second = send(acme, path, request, **{"x-stainless-retry-count": "1"})
        assert (second.status_code, second.json()) == (first.status_code, first.json()), path
        assert second.headers.get("idempotency-replayed") == "true", path
        assert rows(world) == left, path


def test_a_test_event_is_sent_once(acme: TestClient, hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook_deliveries, "_TEST_S", 0.0)
    endpoint, _ = hooks.endpoint()
    path = f"/v1/webhook_endpoints/{to_wire('we', endpoint)}/test"
    answers = [
        send(acme, path, {"json": {"event_type": "job.succeeded"}}, **{"idempotency-key": "k"}) for _ in range(2)
    ]
    assert [answer.json()["error"]["code"] for answer in answers] == ["webhook_test_failed"] * 2
    assert len(hooks.deliveries(endpoint)) == 1


def test_the_same_value_written_otherwise_is_the_same_body(acme: TestClient) -> None:
    headers = {"idempotency-key": "k", "content-type": "application/json"}
    first = acme.post("/v1/jobs", content=b'{"model":"Tiny","document":"\xed\x95\x9c"}', headers=headers)
    again = acme.post("/v1/jobs", content=b'{ "document": "\\ud55c",\n "model": "Tiny" }', headers=headers)
    assert again.json()["id"] == first.json()["id"]


def test_another_body_or_address_is_not_the_same_request(acme: TestClient, world: World) -> None:
    headers = {"idempotency-key": "k"}
    job = acme.post("/v1/jobs", json=JOB, headers=headers).json()
    other = acme.post("/v1/jobs", json=JOB | {"document": "Another."}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_key_reused")
    cancelled = acme.post(f"/v1/jobs/{job['id']}/cancel", headers=headers)
    assert cancelled.json()["status"] == "cancelled"
    assert rows(world)["jobs"] == 1


def test_the_same_key_of_another_tenant_is_another_key(
    as_tenant: Callable[[str], TestClient], acme: TestClient
) -> None:
    answers = [
        client.post("/v1/jobs", json=JOB, headers={"idempotency-key": "k"}) for client in (acme, as_tenant("globex"))
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert len({answer.json()["id"] for answer in answers}) == 2


@pytest.mark.parametrize("key", ["", '""', "x" * 256, '"' + "x" * 256 + '"', "tab\there", "caf\xe9"])
def test_a_key_that_is_none_is_refused(acme: TestClient, world: World, key: str) -> None:
    answer = acme.post("/v1/jobs", json=JOB, headers={b"idempotency-key": key.encode("latin-1")})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")
    assert rows(world)["jobs"] == 0


@pytest.mark.parametrize("key", ["x" * 255, '"' + "x" * 255 + '"', r'"a \"quoted\" \\ word"', 'half"'])
def test_a_key_of_any_form_is_taken(acme: TestClient, key: str) -> None:
    answers = [acme.post("/v1/jobs", json=JOB, headers={"idempotency-key": key}) for _ in range(2)]
    assert answers[0].json() == answers[1].json()


def test_a_request_that_is_being_answered_elsewhere_is_told_to_ask_again(acme: TestClient, world: World) -> None:
    scope = idempotency.scope_of("key", "POST", "/v1/jobs", "k")
    with world.db.transaction() as elsewhere:
        idempotency.lock(elsewhere, "acme", scope)
        answer = acme.post("/v1/jobs", json=JOB, headers={"idempotency-key": "k"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "idempotency_in_flight")
    assert answer.headers["retry-after"] == "1"
    assert "x-should-retry" not in answer.headers
    assert acme.post("/v1/jobs", json=JOB, headers={"idempotency-key": "k"}).status_code == 202


def test_final_refusals_with_409_say_so(acme: TestClient, world: World) -> None:
    ended = world.job_in(State.SUCCEEDED)
    answer = acme.post(f"/v1/jobs/{to_wire('job', ended)}/cancel", headers={"idempotency-key": "k"})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (409, "false")


def test_fifty_at_once_with_one_key_make_one_batch(settings: Settings, world: World) -> None:
    world.base()
    headers = NDJSON | {"authorization": f"Bearer {world.key()}", "idempotency-key": "k"}
    gate = threading.Barrier(50)
    with LiveApi(settings) as live, ThreadPoolExecutor(50) as pool:

        def ask(_: int) -> tuple[int, str]:
            with Client(base_url=live.url, timeout=30) as client:
                gate.wait(30)
                while True:
                    answer = client.post("/v1/batches", content=LINE, headers=headers)
                    if answer.status_code != 409:
                        return answer.status_code, answer.json()["id"]
                    assert answer.headers["retry-after"] == "1"

        answers = set(pool.map(ask, range(50)))
    assert len(answers) == 1
    assert {status for status, _ in answers} == {200}
    assert (rows(world)["batches"], rows(world)["jobs"]) == (1, 1)
