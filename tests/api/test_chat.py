"""Completions: a job and a bounded wait, in the shapes of OpenAI's API."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from httpx2 import Client
from openai.types.chat import ChatCompletionUserMessageParam
from sqlalchemy import text
from starlette.testclient import TestClient

from api.app import create_app
from registry import transitions
from registry.settings import Settings
from tests.api.finisher import Finisher
from tests.api.live import LiveApi
from tests.e2e.crew import eventually
from tests.world import World

MESSAGES: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "프린터가 걸려요."}]
CHAT = {"model": "Tiny", "messages": MESSAGES, "max_tokens": 16}


@pytest.fixture
def hasty(settings: Settings, world: World) -> Iterator[TestClient]:
    """An API that waits a fifth of a second only, called as `acme`."""
    world.base()
    app = create_app(settings.model_copy(update={"completion_wait_s": 0.2}))
    with TestClient(app, headers={"authorization": f"Bearer {world.key()}"}) as client:
        yield client


def job_count(world: World) -> int:
    with world.db.transaction() as session:
        return int(session.execute(text("SELECT count(*) FROM jobs")).scalar_one())


def test_a_chat_is_answered_in_openais_shape(acme: TestClient, world: World) -> None:
    with Finisher(world):
        answer = acme.post("/v1/chat/completions", json=CHAT)
    body = answer.json()
    assert answer.status_code == 200
    job = body["lorry"]["job_id"]
    assert body == {
        "id": f"chatcmpl-{job.removeprefix('job_')}",
        "object": "chat.completion",
        "created": body["created"],
        "model": "Tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "네, 요약입니다.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
        "lorry": {"job_id": job, "adapter_version": None, "timing": body["lorry"]["timing"]},
    }
    assert body["lorry"]["timing"]["total_ms"] > 0
    assert acme.get(f"/v1/jobs/{job}").json()["output"]["text"] == "네, 요약입니다."


def test_a_prompt_is_continued_in_openais_shape(acme: TestClient, world: World) -> None:
    world.adapter()
    with Finisher(world):
        body = acme.post("/v1/completions", json={"model": "tickets", "prompt": "The printer"}).json()
    assert (body["object"], body["id"][:5]) == ("text_completion", "cmpl-")
    assert body["choices"] == [{"index": 0, "text": "네, 요약입니다.", "logprobs": None, "finish_reason": "stop"}]
    assert (body["model"], body["lorry"]["adapter_version"]) == ("tickets", 1)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_streaming_is_refused_by_name(acme: TestClient, path: str) -> None:
    answer = acme.post(path, json={"model": "Tiny", "messages": MESSAGES, "prompt": "x", "stream": True})
    assert answer.status_code == 400
    only = {"model": "Tiny", "stream": True} | ({"messages": MESSAGES} if "chat" in path else {"prompt": "x"})
    assert acme.post(path, json=only).json()["error"]["param"] == "stream"


def test_a_completion_that_takes_too_long_names_its_job_which_goes_on(hasty: TestClient, world: World) -> None:
    answer = hasty.post("/v1/chat/completions", json=CHAT)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (504, "completion_timeout")
    assert answer.headers["x-should-retry"] == "false"
    (job,) = hasty.get("/v1/jobs").json()["data"]
    assert f"GET /v1/jobs/{job['id']}" in error["message"]
    assert job["status"] == "queued"


@pytest.mark.parametrize("headers", [{"idempotency-key": "k"}, {"x-stainless-retry-count": "1"}], ids=["key", "retry"])
def test_a_repetition_waits_for_the_same_job(hasty: TestClient, world: World, headers: dict[str, str]) -> None:
    first = headers if "idempotency-key" in headers else {"x-stainless-retry-count": "0"}
    assert hasty.post("/v1/chat/completions", json=CHAT, headers=first).status_code == 504
    assert hasty.post("/v1/chat/completions", json=CHAT, headers=headers).status_code == 504
    with Finisher(world):
        eventually(lambda: hasty.get("/v1/jobs").json()["data"][0]["status"] == "succeeded", within_s=10)
    done = hasty.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert (done.status_code, done.headers["idempotency-replayed"]) == (200, "true")
    assert job_count(world) == 1


@pytest.mark.parametrize(
    ("code", "status", "shown"),
    [
        ("prompt_too_long", 400, "prompt_too_long"),
        ("adapter_unavailable", 409, "adapter_unavailable"),
        ("generation_failed", 500, "generation_failed"),
        ("worker_lost", 500, "worker_lost"),
        ("of_a_later_release", 500, "engine_error"),
    ],
)
def test_a_failed_job_answers_with_its_own_error_for_good(
    acme: TestClient, world: World, code: str, status: int, shown: str
) -> None:
    with Finisher(world, error_code=code):
        answer = acme.post("/v1/chat/completions", json=CHAT)
    (job,) = acme.get("/v1/jobs").json()["data"]
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, shown)
    assert answer.json()["error"]["message"] == f"It failed. (Job {job['id']}.)"
    assert (answer.headers.get("x-should-retry") == "false") == (status >= 409)


def test_a_job_that_is_cancelled_meanwhile_ends_the_wait(acme: TestClient, world: World) -> None:
    answers = []
    asking = threading.Thread(target=lambda: answers.append(acme.post("/v1/chat/completions", json=CHAT)))
    asking.start()
    eventually(lambda: job_count(world) == 1, within_s=10)
    with world.db.transaction() as session:
        job = session.execute(text("SELECT id FROM jobs")).scalar_one()
        transitions.cancel(session, "acme", job)
    asking.join(10)
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (409, "job_ended")


def test_the_job_of_a_client_that_has_gone_goes_on(settings: Settings, world: World) -> None:
    world.base()
    headers = {"authorization": f"Bearer {world.key()}"}
    with LiveApi(settings) as live:
        with pytest.raises(Exception, match="timed out"), Client(base_url=live.url, timeout=1.0) as client:
            client.post("/v1/chat/completions", json=CHAT, headers=headers)
        with Client(base_url=live.url, timeout=30, headers=headers) as client, Finisher(world):
            eventually(lambda: client.get("/v1/jobs").json()["data"][0]["status"] == "succeeded", within_s=10)
