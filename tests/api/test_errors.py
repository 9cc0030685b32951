"""The one form of every error, and the one table of statuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from api import errors
from api.app import create_app
from registry import errors as tree
from registry.errors import AdapterRejected, LineRefused, LorryError
from registry.settings import Settings
from tests.world import World

MEMBERS = {"type", "title", "status", "detail", "instance", "error", "request_id"}


def test_every_code_has_a_status_and_no_status_is_without_a_code() -> None:
    kinds = [kind for kind in vars(tree).values() if isinstance(kind, type) and issubclass(kind, LorryError)]
    # A refused line is told in its batch; it is never the answer to a request.
    assert {kind.code for kind in kinds if not issubclass(kind, LineRefused)} == set(errors.KINDS)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/v1/jobs/", 404, "not_found"),
        ("DELETE", "/v1/jobs", 405, "method_not_allowed"),
        ("POST", "/livez", 405, "method_not_allowed"),
        ("GET", "/v1/jobs", 401, "invalid_api_key"),
        ("GET", "/../etc/passwd", 404, "not_found"),
    ],
)
def test_every_error_has_both_forms_and_the_requests_id(
    stranger: TestClient, world: World, method: str, path: str, status: int, code: str
) -> None:
    answer = stranger.request(method, path)
    body = answer.json()
    assert answer.status_code == body["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(body) == MEMBERS
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["code"] == code
    assert body["error"]["message"] == body["detail"]
    assert body["type"] == f"urn:lorry:error:{code}"
    assert body["request_id"] == answer.headers["x-request-id"]


def test_a_405_says_what_is_allowed(stranger: TestClient) -> None:
    assert "GET" in stranger.request("DELETE", "/livez").headers["allow"]


def test_a_rejected_adapter_carries_its_reason_and_the_repair() -> None:
    answer = errors.problem(AdapterRejected("It has NaN.", reason="values_nan", repair="Train again."), "req_1")
    assert answer.status_code == 422
    assert b'"reason":"values_nan"' in answer.body
    assert b'"detail":"It has NaN. Train again."' in answer.body


@pytest.fixture
def broken(settings: Settings) -> Iterator[TestClient]:
    """A client of an app whose only new route fails in a way that nobody foresaw."""
    app: FastAPI = create_app(settings)

    @app.get("/broken")
    def fail() -> None:
        raise RuntimeError("고객 canary")

    with TestClient(app) as client:
        yield client


def test_an_unforeseen_error_is_a_500_that_says_nothing(broken: TestClient) -> None:
    answer = broken.get("/broken")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "canary" not in answer.text
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
