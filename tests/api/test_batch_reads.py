"""Batches over HTTP, beside their making."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.registry.batches.batch_rig import Batches
from tests.world import World


@pytest.fixture
def batches(world: World) -> Batches:
    return Batches(world)


def wire(batch_id: Any) -> str:
    return f"batch_{batch_id.hex}"


def lines_of(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.content.split(b"\n")[:-1]]


def test_batches_are_listed_in_pages_newest_first(acme: TestClient, batches: Batches) -> None:
    made = [wire(batches.make(1)) for _ in range(3)]
    batches.make(1, "globex")
    first = acme.get("/v1/batches", params={"limit": 2}).json()
    assert [batch["id"] for batch in first["data"]] == made[:0:-1]
    assert (first["has_more"], first["last_id"]) == (True, made[1])
    rest = acme.get("/v1/batches", params={"limit": 2, "after": first["last_id"]}).json()
    assert ([batch["id"] for batch in rest["data"]], rest["has_more"]) == (made[:1], False)


@pytest.mark.parametrize("after", ["batch_nonsense", "batch_" + "0" * 32])
def test_an_after_that_is_none_of_ones_own_is_refused(acme: TestClient, after: str) -> None:
    answer = acme.get("/v1/batches", params={"after": after})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")


def test_a_batch_is_cancelled_once_twice_and_not_after_its_end(acme: TestClient, batches: Batches) -> None:
    batch_id = batches.make(2)
    path = f"/v1/batches/{wire(batch_id)}/cancel"
    first, second = acme.post(path), acme.post(path)
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert first.json()["status"] == "cancelling"
    assert batches.dispatch() == ["cancelled"]
    late = acme.post(path)
    assert (late.status_code, late.json()["error"]["code"]) == (409, "batch_ended")
    assert late.headers["x-should-retry"] == "false"
    assert acme.get(f"/v1/batches/{wire(batch_id)}").json()["status"] == "cancelled"


def test_results_come_in_either_order_and_go_on_from_a_cursor(acme: TestClient, batches: Batches) -> None:
    batch_id = batches.make(4)
    batches.run(batch_id, succeed=[3])
    batches.run(batch_id, succeed=[1])
    path = f"/v1/batches/{wire(batch_id)}/results"
    answer = acme.get(path)
    assert answer.headers["lorry-batch-status"] == "in_progress"
    assert [line["line"] for line in lines_of(answer)] == [1]
    ended = lines_of(acme.get(path, params={"order": "completion"}))
    assert [line["line"] for line in ended] == [3, 1]
    batches.run(batch_id, succeed=[2, 4])
    batches.dispatch()
    rest = acme.get(path, params={"order": "completion", "after": ended[-1]["cursor"], "limit": 1})
    assert [line["line"] for line in lines_of(rest)] == [2]
    assert rest.headers["lorry-batch-status"] == "completed"
    job = acme.get(f"/v1/jobs/{ended[0]['id']}").json()
    assert {key: ended[0][key] for key in job} == job


def test_a_cursor_of_another_order_is_refused(acme: TestClient, batches: Batches) -> None:
    path = f"/v1/batches/{wire(batches.make(1))}/results"
    answer = acme.get(path, params={"after": "c1.1"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")


def test_an_ended_batch_runs_its_other_lines_again(acme: TestClient, batches: Batches) -> None:
    batch_id = batches.make(3)
    path = f"/v1/batches/{wire(batch_id)}/rerun"
    early = acme.post(path)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "not_ended")
    batches.run(batch_id, succeed=[1], fail=[2, 3])
    batches.dispatch()
    again = acme.post(path, headers={"idempotency-key": "again"})
    assert again.status_code == 200
    assert again.json()["lorry"]["rerun_of"] == wire(batch_id)
    assert again.json()["request_counts"]["total"] == 2
    replayed = acme.post(path, headers={"idempotency-key": "again"})
    assert (replayed.json(), replayed.headers["idempotency-replayed"]) == (again.json(), "true")
    assert len(acme.get("/v1/batches").json()["data"]) == 2


def test_a_batch_without_other_lines_has_nothing_to_rerun(acme: TestClient, batches: Batches) -> None:
    batch_id = batches.make(1)
    batches.run(batch_id, succeed=[1])
    batches.dispatch()
    answer = acme.post(f"/v1/batches/{wire(batch_id)}/rerun")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "nothing_to_rerun")
    assert answer.headers["x-should-retry"] == "false"


def test_a_batch_is_deleted_once_it_has_ended(acme: TestClient, batches: Batches) -> None:
    batch_id = batches.make(1)
    path = f"/v1/batches/{wire(batch_id)}"
    early = acme.delete(path)
    assert (early.status_code, early.json()["error"]["code"]) == (409, "not_ended")
    batches.run(batch_id, succeed=[1])
    batches.dispatch()
    job_id = f"job_{batches.jobs(batch_id)[1].hex}"
    assert acme.delete(path).json() == {"id": wire(batch_id), "object": "batch", "deleted": True}
    assert [acme.get(gone).status_code for gone in (path, f"{path}/results", f"/v1/jobs/{job_id}")] == [404] * 3


def test_a_job_is_deleted_once_it_has_ended(acme: TestClient, world: World) -> None:
    path = f"/v1/jobs/job_{world.job('acme').hex}"
    assert acme.delete(path).status_code == 409
    acme.post(f"{path}/cancel")
    assert acme.delete(path).json()["deleted"] is True
    assert [acme.get(path).status_code, acme.delete(path).status_code] == [404, 404]


def test_another_tenants_batch_is_untouched(as_tenant: Callable[[str], TestClient], batches: Batches) -> None:
    batch_id = batches.make(1, "globex")
    acme = as_tenant("acme")
    for method, rest in (("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("POST", "/rerun"), ("DELETE", "")):
        assert acme.request(method, f"/v1/batches/{wire(batch_id)}{rest}").status_code == 404
    assert batches.view(batch_id, "globex").status == "in_progress"
