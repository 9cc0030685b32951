"""One tenant never sees another's things: every route with an id in it, found from the app itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import text
from starlette.testclient import TestClient

from registry import transitions
from registry.ids import to_wire
from tests.api.routes import Known, routes_of
from tests.registry.batches.batch_rig import Batches
from tests.world import World

# What each parameter of a path may be: the caller's own thing, another tenant's, nobody's, and what is no id at all.
# A route with a parameter that is not here fails the test below: say what its ids are.
Ids = dict[str, dict[str, str]]
BODIES: dict[str, dict[str, Any]] = {"/v1/adapters/{adapter}/activate": {"version": 1}}


def ids_of(world: World) -> Ids:
    world.adapter("acme", "mine")
    world.adapter("globex", "theirs")
    named = {"own": "mine", "foreign": "theirs", "random": "nobodys", "malformed": "%00%ED%A0%80%20Sch%C3%B6n"}
    batches = Batches(world)
    jobs = {"own": to_wire("job", world.job("acme")), "foreign": to_wire("job", world.job("globex"))}
    return {
        "job_id": {**jobs, "random": to_wire("job", uuid.uuid4()), "malformed": "job_%00'--"},
        "batch_id": {
            "own": to_wire("batch", batches.make(1, "acme")),
            "foreign": to_wire("batch", batches.make(1, "globex")),
            "random": to_wire("batch", uuid.uuid4()),
            "malformed": "batch_%00'--",
        },
        "file_id": {
            "own": error_file(batches, "acme"),
            "foreign": error_file(batches, "globex"),
            "random": to_wire("file", uuid.uuid4()),
            "malformed": "file-%00'--",
        },
        "adapter": named,
        "model": named,
    }


def error_file(batches: Batches, tenant_id: str) -> str:
    """The error file of a batch that had one bad line."""
    batch_id = batches.make(1, tenant_id, bad=[1], on_bad_line="skip")
    batches.dispatch()
    return str(batches.view(batch_id, tenant_id).error_file_id)


def test_foreign_random_and_malformed_ids_are_all_missing(
    app: FastAPI, as_tenant: Callable[[str], TestClient], world: World
) -> None:
    client = as_tenant("acme")
    with_ids = [known for known in routes_of(app) if "{" in known.path and not apart(known)]
    assert len(with_ids) >= 5
    for known in with_ids:
        ids = ids_of(world)  # anew for each route: some change or delete what they name
        parameter = known.path.partition("{")[2].partition("}")[0]
        assert parameter in ids, f"{known}: say in this file what its ids are"
        ready(world, known)
        answers = {kind: ask(client, known, parameter, value) for kind, value in ids[parameter].items()}
        assert answers.pop("own")[0] == 200, known
        assert {status for status, _ in answers.values()} == {404}, (known, answers)
        assert answers["foreign"] == answers["random"] == answers["malformed"], known


def ready(world: World, known: Known) -> None:
    """End acme's job and batch, with a line to run again, for a route that takes ended ones."""
    if known.method == "DELETE" or known.path.endswith("/rerun"):
        batches = Batches(world)
        with world.db.transaction() as session:
            session.execute(text("UPDATE jobs SET deadline = now() WHERE tenant_id = 'acme' AND finished_at IS NULL"))
        with world.db.transaction() as session:
            transitions.expire(session)
        batches.dispatch()


def apart(known: Known) -> bool:
    """Webhooks' routes have two ids each and change what they name: test_webhook_isolation.py asks them."""
    return known.path.startswith("/v1/webhook_")


def ask(client: TestClient, known: Known, parameter: str, value: str) -> tuple[int, dict[str, Any]]:
    """Status and body without the parts that are each request's own."""
    path = known.path.replace(f"{{{parameter}}}", value)
    answer = client.request(known.method, path, json=BODIES.get(known.path))
    body = answer.json() if "json" in answer.headers["content-type"] and answer.content else {}
    return answer.status_code, {key: body[key] for key in body if key not in ("instance", "request_id")}


@pytest.mark.parametrize("address", ["/v1/jobs", "/v1/adapters", "/v1/models", "/v1/batches", "/v1/files"])
def test_lists_show_the_callers_own_things(as_tenant: Callable[[str], TestClient], world: World, address: str) -> None:
    ids_of(world)
    listed = as_tenant("acme").get(address).text
    assert "theirs" not in listed
    assert "globex" not in listed
    assert len(as_tenant("acme").get("/v1/jobs").json()["data"]) == 2  # one of them a line of a batch
    assert len(as_tenant("acme").get("/v1/batches").json()["data"]) == 2


def test_every_list_route_is_in_the_test_above(app: FastAPI) -> None:
    lists = {
        known.path for known in routes_of(app) if known.method == "GET" and "{" not in known.path and not apart(known)
    }
    of_tenants = {"jobs", "adapters", "models", "usage", "usage.csv", "batches", "files"}
    assert {path for path in lists if path.startswith("/v1/")} == {f"/v1/{name}" for name in of_tenants}


def test_a_foreign_adapter_is_not_changed_by_an_activation(
    as_tenant: Callable[[str], TestClient], world: World
) -> None:
    world.adapter("globex", "theirs")
    world.adapter("globex", "theirs")
    answer = as_tenant("acme").post("/v1/adapters/theirs/activate", json={"version": 2})
    assert answer.status_code == 404
    versions = as_tenant("globex").get("/v1/adapters/theirs").json()["data"]
    assert [(view["version"], view["is_active"]) for view in versions] == [(2, False), (1, True)]
