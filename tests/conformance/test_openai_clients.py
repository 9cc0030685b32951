"""OpenAI's own package, versions 3 and 2, each in an environment of its own, against a running stack."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.conformance import openai2
from tests.conformance.conftest import Stack

WALK = Path(__file__).with_name("client_walk.py")
LIMITS = text(
    "INSERT INTO tenant_limits (tenant_id, posts_per_minute, tokens_per_day) VALUES (:tenant, :posts, :tokens)"
)
ERRORS = {
    "bad_request": ("BadRequestError", 400, "invalid_value"),
    "authentication": ("AuthenticationError", 401, "invalid_api_key"),
    "not_found": ("NotFoundError", 404, "not_found"),
    "model_not_found": ("NotFoundError", 404, "model_not_found"),
    "quota": ("RateLimitError", 429, "insufficient_quota"),
    "rate_limit": ("RateLimitError", 429, "rate_limit_exceeded"),
    "unavailable": ("InternalServerError", 503, "unavailable"),
    "conflict": ("ConflictError", 409, "batch_ended"),
    "other_body": ("UnprocessableEntityError", 422, "idempotency_key_reused"),
}


def limited(stack: Stack, tenant: str, *, posts: int | None = None, tokens: int | None = None) -> str:
    """A key of a new tenant with limits of its own."""
    key = stack.world.key(tenant)
    with stack.world.db.transaction() as session:
        session.execute(LIMITS, {"tenant": tenant, "posts": posts, "tokens": tokens})
    return key


@pytest.fixture(scope="module", params=["3", "2"])
def seen(request: pytest.FixtureRequest, stack: Stack) -> dict[str, Any]:
    """What the client of this major version saw on its walk."""
    version = request.param
    python = Path(sys.executable) if version == "3" else openai2.python_of(request.config.cache)
    tenant = f"openai{version}"
    stack.world.adapter(tenant)
    plan = {
        "url": stack.url,
        "down_url": stack.down_url,
        "hook_port": stack.hook_port,
        "key": stack.world.key(tenant),
        "busy_key": limited(stack, f"busy{version}", posts=1),
        "spent_key": limited(stack, f"spent{version}", tokens=0),
    }
    done = subprocess.run(
        [python, "-E", "-s", WALK], input=json.dumps(plan), capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["version"].startswith(f"{version}.")
    report["errors"] |= {"conflict": report["cancel"]["too_late"], "other_body": report["idempotency"]["other_body"]}
    return report


def test_files_are_kept_listed_over_pages_read_and_deleted(seen: dict[str, Any]) -> None:
    files = seen["files"]
    assert files["found"] == [files["made"][0], "a.jsonl", True, "batch", "processed", "file"]
    assert files["listed"] == files["made"]
    assert (files["first_page"], files["same_bytes"], files["left"]) == (2, True, 0)
    assert files["deleted"] == [True] * 3


def test_batches_run_to_their_end_and_are_listed_over_pages(seen: dict[str, Any]) -> None:
    batches = seen["batches"]
    assert batches["made"] == ["batch", "in_progress", {"lorry.on_bad_line": "skip", "night": "1"}, True]
    assert batches["end"] == ["completed", 13, 12, 1]
    assert batches["output"] == [f"t-{number}" for number in range(1, 13)]
    assert batches["errors"] == [["bad", 400]]
    assert batches["refused"][:2] == ["failed", 1]
    assert (batches["usage"], batches["texts"], batches["pages"]) == (True, True, True)


def test_a_batch_is_cancelled(seen: dict[str, Any]) -> None:
    assert seen["cancel"]["asked"] == ["cancelling", "cancelling"]
    assert seen["cancel"]["end"] == ["cancelled", 200]


def test_completions_answer_at_once_with_a_request_id(seen: dict[str, Any]) -> None:
    completions = seen["completions"]
    assert completions["chat"][:3] == ["chat.completion", "tickets", True]
    assert completions["text"] == ["text_completion", "tickets@1", True]
    assert completions["raw"] == [200, "Tiny"]
    assert completions["usage"] is True
    assert all(request_id.startswith("req_") for request_id in completions["request_id"])
    assert int(completions["limits"]) > 0


def test_models_are_listed_and_found(seen: dict[str, Any]) -> None:
    assert seen["models"] == {"listed": ["Tiny", "tickets", "tickets@1"], "found": ["tickets@1", "model", True]}


def test_a_key_makes_a_repetition_the_same_batch(seen: dict[str, Any]) -> None:
    assert (seen["idempotency"]["same"], seen["idempotency"]["replayed"]) == (True, "true")


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_its_class_code_message_and_request_id(seen: dict[str, Any], kind: str) -> None:
    error = seen["errors"][kind]
    assert (error["class"], error["status"], error["code"]) == ERRORS[kind]
    assert error["said"].endswith(".")
    assert error["said"] in error["shown"]
    assert error["request_id"].startswith("req_")
    if kind in ("rate_limit", "unavailable"):
        assert 1 <= int(error["retry_after"]) <= 120
    elif error["status"] in (409, 429):
        assert error["should_retry"] == "false"


def test_a_field_that_is_not_served_is_named(seen: dict[str, Any]) -> None:
    assert seen["errors"]["bad_request"]["param"] == "n"
    assert seen["errors"]["model_not_found"]["param"] == "model"


def test_deliveries_are_unwrapped_where_they_arrive_and_forged_ones_refused(seen: dict[str, Any]) -> None:
    assert seen["webhooks"] == {
        "kinds": ["BatchCompletedWebhookEvent"],
        "ids": True,
        "forged": ["InvalidWebhookSignatureError"],
    }
