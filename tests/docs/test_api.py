"""docs/api.md has every route of the OpenAPI document with its parameters, fields and statuses, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from api.app import create_app
from registry.settings import Settings
from tests.docs import pages

PAGE = pages.read("api")
SECTIONS: dict[str, str] = dict(re.findall(r"(?ms)^### ([A-Z]+ /\S+)\n(.*?)(?=^#|\Z)", pages.prose(PAGE)))
STATUS = re.compile(r"^Status: (.+?)\n\n?(?=\Z|#)", re.M | re.S)
COMMON = [(row[0], row[1]) for row in pages.table(PAGE, "Common statuses")]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, by_method in document["paths"].items():
        for method, operation in by_method.items():
            yield f"{method.upper()} {path}", operation


def first_column(section: str, head: str) -> set[str]:
    """The names in the section's tables whose first heading is `head`."""
    rows = re.findall(rf"^\| {head} \|.*\n\|[-|]+\n((?:\|.*\n)+)", section, re.M)
    return {match for table in rows for match in re.findall(r"^\| `([^`]+)` \|", table, re.M)}


def fields(document: dict[str, Any], operation: dict[str, Any]) -> set[str]:
    """The fields of the operation's JSON or form body."""
    contents = operation.get("requestBody", {}).get("content", {})
    found: set[str] = set()
    for content in contents.values():
        schema = content["schema"]
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        found |= schema.get("properties", {}).keys()
    return found


def statuses(route: str, operation: dict[str, Any]) -> set[str]:
    """What the page says: the section's own statuses, and those of every route of its kind."""
    said = STATUS.search(SECTIONS[route])
    assert said is not None, route
    kinds = {"all"} | ({"POST"} if route.startswith("POST") else set())
    kinds |= {"with a body"} if "requestBody" in operation else set()
    common = {status for kind, status in COMMON if kind in kinds and "security" in operation}
    return set(re.findall(r"`(\d{3})`", said[1])) | common


def test_every_route_is_on_the_page_and_no_other(document: dict[str, Any]) -> None:
    assert SECTIONS.keys() == {route for route, _ in operations(document)}


def test_parameters_are_those_of_the_document(document: dict[str, Any]) -> None:
    for route, operation in operations(document):
        known = [(parameter["in"], parameter["name"]) for parameter in operation.get("parameters", [])]
        for place in ("query", "header"):
            names = {name for where, name in known if where == place}
            assert first_column(SECTIONS[route], place) == names, route
        assert set(re.findall(r"{(\w+)}", route)) == {name for where, name in known if where == "path"}, route


def test_fields_of_bodies_are_those_of_the_document(document: dict[str, Any]) -> None:
    for route, operation in operations(document):
        assert first_column(SECTIONS[route], "field") == fields(document, operation), route


def test_statuses_are_those_of_the_document(document: dict[str, Any]) -> None:
    for route, operation in operations(document):
        assert statuses(route, operation) == set(operation["responses"]), route
