"""One tenant never reaches another's webhooks: every route below /v1/webhook_endpoints, found from the app itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from api import webhook_deliveries
from registry.ids import to_wire
from registry.secrets import SecretBox
from registry.settings import Settings
from registry.webhooks import event_ids
from tests.api.routes import Known, routes_of
from tests.hooks import Hooks
from tests.world import World

PREFIX = "/v1/webhook_endpoints/{endpoint_id}"
BODIES: dict[str, dict[str, Any]] = {
    PREFIX: {"name": "changed"},
    f"{PREFIX}/rotate_secret": {},
    f"{PREFIX}/test": {"event_type": "job.failed"},
}
QUERIES = {f"{PREFIX}/redeliver": {"since": "0"}}
# What the caller's own answers where it is not 200: nobody sends webhooks here.
OWN = {f"{PREFIX}/test": 424}


@pytest.fixture
def ids(world: World, settings: Settings) -> dict[str, dict[str, str]]:
    """By the name of the parameter in the path: the caller's own id, a foreign one, nobody's, and none at all."""
    hooks = Hooks(world, SecretBox(settings))
    found: dict[str, dict[str, str]] = {
        "endpoint_id": {"random": to_wire("we", uuid.uuid4()), "malformed": "we_%00'--"},
        "delivery_id": {"random": event_ids.to_wire(uuid.uuid4()), "malformed": "evt_%00'--"},
    }
    for whose, tenant in (("own", "acme"), ("foreign", "globex")):
        endpoint, _ = hooks.endpoint(f"https://{tenant}.example/", tenant=tenant)
        hooks.cancelled_job(tenant)
        found["endpoint_id"][whose] = to_wire("we", endpoint)
        found["delivery_id"][whose] = event_ids.to_wire(hooks.deliveries(endpoint)[0].id)
    return found


def test_foreign_random_and_malformed_ids_are_all_missing(
    app: FastAPI,
    as_tenant: Callable[[str], TestClient],
    ids: dict[str, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_deliveries, "_TEST_S", 0.1)
    routes = [known for known in routes_of(app) if known.path.startswith(PREFIX)]
    assert len(routes) >= 8
    client = as_tenant("acme")
    # What deletes the caller's own endpoint comes last.
    for known in sorted(routes, key=lambda known: known.method == "DELETE"):
        for parameter in ("endpoint_id", "delivery_id"):
            if f"{{{parameter}}}" in known.path:
                answers = {
                    kind: ask(client, known, ids, parameter, kind) for kind in ("foreign", "random", "malformed")
                }
                assert {status for status, _ in answers.values()} == {404}, (known, answers)
                assert answers["foreign"] == answers["random"] == answers["malformed"], known
        assert ask(client, known, ids, "endpoint_id", "own")[0] == OWN.get(known.path, 200), known


def test_the_lists_show_the_callers_own(as_tenant: Callable[[str], TestClient], ids: dict[str, dict[str, str]]) -> None:
    client = as_tenant("acme")
    assert [row["id"] for row in client.get("/v1/webhook_endpoints").json()["data"]] == [ids["endpoint_id"]["own"]]
    log = client.get(f"/v1/webhook_endpoints/{ids['endpoint_id']['own']}/deliveries").json()["data"]
    assert [row["id"] for row in log] == [ids["delivery_id"]["own"]]


def ask(
    client: TestClient, known: Known, ids: dict[str, dict[str, str]], parameter: str, kind: str
) -> tuple[int, dict[str, Any]]:
    """Status and body without the parts that are each request's own; the path's other id is the caller's."""
    path = known.path
    for name, values in ids.items():
        path = path.replace(f"{{{name}}}", values[kind if name == parameter else "own"])
    answer = client.request(known.method, path, json=BODIES.get(known.path), params=QUERIES.get(known.path))
    body = answer.json()
    return answer.status_code, {key: body[key] for key in body if key not in ("instance", "request_id")}
