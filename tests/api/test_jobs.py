"""/v1/jobs over the real database."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from registry import ids, transitions, wake
from registry.db import Database
from registry.states import State
from tests.world import World

KOREAN = "고객이 프린터가 걸린다고 합니다 😀"


def submit(client: TestClient, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/jobs", json={"model": "Tiny", "document": "The printer jams.", **fields})
    assert answer.status_code == 202, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_a_submitted_job_is_accepted_with_its_address(acme: TestClient) -> None:
    answer = acme.post("/v1/jobs", json={"model": "Tiny", "document": "x", "custom_id": "t-1", "metadata": {"a": "b"}})
    job = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert answer.headers["retry-after"] == "2"
    assert (job["status"], job["custom_id"], job["metadata"], job["output"]) == ("queued", "t-1", {"a": "b"}, None)
    assert acme.get(answer.headers["location"]).json() == job


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": "Say hi"},
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
        {"document": "x", "base_model": "Tiny"},
        {"document": "x", "stop": "\n"},
        {"document": "x", "stop": ["a", "b"], "temperature": 1, "top_p": 0.5, "seed": 7, "max_tokens": 5},
    ],
)
def test_every_form_of_input_is_taken(acme: TestClient, given: dict[str, Any]) -> None:
    assert acme.post("/v1/jobs", json={"model": "Tiny", **given}).status_code == 202


@pytest.mark.parametrize(
    ("given", "code", "param"),
    [
        ({}, "invalid_value", None),
        ({"document": "x", "prompt": "y"}, "invalid_value", None),
        ({"document": ""}, "invalid_value", "document"),
        ({"document": "x", "max_tokens": True}, "invalid_value", "max_tokens"),
        ({"document": "x", "max_tokens": 0}, "invalid_value", "max_tokens"),
        ({"document": "x", "temperature": 10**60}, "invalid_value", "temperature"),
        ({"document": "x", "seed": 2**63}, "invalid_value", "seed"),
        ({"document": "x", "tools": []}, "invalid_value", "tools"),
        ({"document": "x", "tenant_id": "globex"}, "invalid_value", "tenant_id"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "invalid_value", "messages[0].role"),
        ({"document": "x", "metadata": {"k": 1}}, "invalid_value", "metadata"),
        ({"document": "x", "base_model": "Other"}, "base_model_mismatch", "base_model"),
        ({"document": "x", "max_tokens": 100_000}, "prompt_too_long", "max_tokens"),
    ],
)
def test_a_bad_field_is_refused_by_name(acme: TestClient, given: dict[str, Any], code: str, param: str | None) -> None:
    answer = acme.post("/v1/jobs", json={"model": "Tiny", **given})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text
    assert answer.json()["error"]["param"] == param


def test_a_prompt_beyond_the_context_is_refused_with_both_counts(acme: TestClient) -> None:
    answer = acme.post("/v1/jobs", json={"model": "Tiny", "prompt": "a" * 3000, "max_tokens": 7})
    assert answer.json()["error"]["code"] == "prompt_too_long"
    assert all(word in answer.json()["detail"] for word in ("max_tokens is 7", "512 tokens"))


def test_max_tokens_is_the_default_or_what_the_prompt_leaves(acme: TestClient, api_db: Database, world: World) -> None:
    short, long = submit(acme, prompt="a", document=None), submit(acme, prompt="a" * 490, document=None)
    budgets = [sampling(world, job["id"])["max_tokens"] for job in (short, long)]
    assert budgets[0] == 256
    assert 1 <= budgets[1] <= 22


def sampling(world: World, job_id: str) -> dict[str, Any]:
    with world.db.transaction() as session:
        query = text("SELECT body->'sampling' FROM job_inputs WHERE job_id = :id")
        found: dict[str, Any] = session.scalar(query, {"id": ids.from_wire("job", job_id)})
        return found


def test_an_adapter_of_another_tenant_is_no_model(as_tenant: Callable[[str], TestClient], world: World) -> None:
    world.adapter("globex", "tickets")
    acme = as_tenant("acme")
    bodies = []
    for model in ("tickets", "nothing-at-all"):
        answer = acme.post("/v1/jobs", json={"model": model, "document": "x"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        bodies.append(answer.json()["error"])
    assert bodies[0] == bodies[1]


def test_a_job_names_the_adapter_version_that_will_run_it(as_tenant: Callable[[str], TestClient], world: World) -> None:
    world.adapter("acme", "tickets")
    world.adapter("acme", "tickets")
    acme = as_tenant("acme")
    assert submit(acme, model="tickets")["adapter_version"] == 1
    assert submit(acme, model="tickets@2")["adapter_version"] == 2


def test_a_retired_version_is_a_final_conflict(as_tenant: Callable[[str], TestClient], world: World) -> None:
    world.adapter("acme", "tickets")
    with world.db.transaction() as session:
        session.execute(text("UPDATE tenant_adapters SET state = 'retired', state_reason = 'old', is_active = false"))
    answer = as_tenant("acme").post("/v1/jobs", json={"model": "tickets@1", "document": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "adapter_unavailable")
    assert answer.headers["x-should-retry"] == "false"


def test_text_comes_back_byte_for_byte(acme: TestClient, world: World) -> None:
    job = submit(acme, document=KOREAN, custom_id=KOREAN, metadata={KOREAN: KOREAN})
    worker = world.worker()
    claimed = world.claim(worker, world.pick())[0]
    with world.db.transaction() as session:
        transitions.start(session, [(claimed.job_id, claimed.fence)])
        done = transitions.Outcome(
            claimed.job_id,
            claimed.fence,
            "succeeded",
            text=KOREAN,
            finish_reason="stop",
            prompt_tokens=3,
            output_tokens=4,
        )
        transitions.settle(session, [done])
    answer = acme.get(f"/v1/jobs/{job['id']}")
    assert answer.json()["output"] == {"text": KOREAN, "finish_reason": "stop"}
    assert answer.json()["usage"] == {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    assert answer.content.count(KOREAN.encode()) == 4
    assert b"\\u" not in answer.content


def test_jobs_are_paged_newest_first_without_gaps(acme: TestClient) -> None:
    made = [submit(acme)["id"] for _ in range(5)]
    seen: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = acme.get("/v1/jobs", params={"limit": 2, **after}).json()
        seen += [job["id"] for job in page["data"]]
        assert (page["object"], page["first_id"], page["last_id"]) == ("list", seen[-len(page["data"])], seen[-1])
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert seen == made[::-1]


def test_jobs_are_listed_by_status(acme: TestClient) -> None:
    first, second = submit(acme)["id"], submit(acme)["id"]
    acme.post(f"/v1/jobs/{first}/cancel")
    assert [job["id"] for job in acme.get("/v1/jobs?status=queued").json()["data"]] == [second]
    assert [job["id"] for job in acme.get("/v1/jobs?status=cancelled").json()["data"]] == [first]
    assert acme.get("/v1/jobs?status=running").json() == {
        "object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False
    }  # fmt: skip


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "status=done", "after=job_x", "after=%00"])
def test_a_bad_query_is_refused_by_name(acme: TestClient, query: str) -> None:
    answer = acme.get(f"/v1/jobs?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


def test_an_after_of_another_tenant_answers_like_a_missing_one(
    acme: TestClient, as_tenant: Callable[[str], TestClient]
) -> None:
    foreign = submit(as_tenant("globex"))["id"]
    missing = ids.to_wire("job", uuid.uuid4())
    answers = [acme.get("/v1/jobs", params={"after": after}) for after in (foreign, missing)]
    assert [answer.status_code for answer in answers] == [400, 400]
    assert answers[0].json()["error"] == answers[1].json()["error"]


def test_cancelling_twice_gives_the_same_job(acme: TestClient) -> None:
    job = submit(acme)["id"]
    answers = [acme.post(f"/v1/jobs/{job}/cancel") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert answers[0].json()["status"] == "cancelled"


def test_a_running_job_can_be_cancelled(acme: TestClient, world: World) -> None:
    job = world.job_in(State.RUNNING)
    assert acme.post(f"/v1/jobs/{ids.to_wire('job', job)}/cancel").json()["status"] == "cancelled"
    assert world.state(job) == "cancelled"


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.EXPIRED])
def test_a_job_that_ended_otherwise_is_a_final_conflict(acme: TestClient, world: World, state: State) -> None:
    job = world.job_in(state)
    answer = acme.post(f"/v1/jobs/{ids.to_wire('job', job)}/cancel")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "job_ended")
    assert answer.headers["x-should-retry"] == "false"
    assert world.state(job) == state


def test_neighbours_are_woken_after_the_commit(acme: TestClient, database_url: str, world: World) -> None:
    listener = wake.listen(database_url, wake.QUEUED, wake.CANCELLED)
    with listener:
        job = submit(acme)["id"]
        acme.post(f"/v1/jobs/{job}/cancel")
        heard = {notice.channel for notice in listener.notifies(timeout=5, stop_after=2)}
    assert heard == {wake.QUEUED, wake.CANCELLED}
