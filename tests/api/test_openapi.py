"""The OpenAPI document says what the routes do."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from api.errors import KINDS
from tests.api.routes import PUBLIC, routes_of


@pytest.fixture
def document(stranger: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = stranger.get("/openapi.json").json()
    return found


def test_every_route_is_documented_and_private_ones_name_the_bearer_key(app: FastAPI, document: dict[str, Any]) -> None:
    routes = [known for known in routes_of(app) if known.path != "/openapi.json"]
    for known in routes:
        operation = document["paths"][known.path][known.method.lower()]
        assert ("security" in operation) == (known.path not in PUBLIC)
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert sum(len(operations) for operations in document["paths"].values()) == len(routes)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known
    assert "#/components/schemas/JobCreate" in references(document["paths"]["/v1/jobs"]["post"])


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(references(value) for value in node.values()))
    return set().union(*(references(value) for value in node)) if isinstance(node, list) else set()


def test_documented_errors_are_problems_with_a_status_of_the_table(document: dict[str, Any]) -> None:
    statuses = {str(kind.status) for kind in KINDS.values()}
    for operations in document["paths"].values():
        for operation in operations.values():
            failures = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
            assert set(failures) <= statuses
            for answer in failures.values():
                assert list(answer["content"]) == ["application/problem+json"]
