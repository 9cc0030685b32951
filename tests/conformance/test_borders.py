"""What a stranger, or another tenant, gets out of a running API with odd requests: nothing."""

from __future__ import annotations

import json
import socket
import uuid
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.conformance.conftest import Stack
from tests.world import World

OPEN = ("/livez", "/readyz", "/openapi.json")
CHANGED_PATHS = ("/{0}", "/.{0}", "/%2e{0}", "/livez/..{0}", "/livez/%2e%2e{0}", "/livez;{0}", "{0};/livez", "{0}%00",
                 "{0}/", "{0}%2f..%2flivez")  # fmt: skip
TRICKS = (
    {"Host": "x/livez"},
    {"Host": "livez"},
    {"X-HTTP-Method-Override": "GET"},
    {"X-Original-URL": "/livez"},
    {"X-Forwarded-Prefix": "/livez"},
    {"Authorization": "Bearer "},
)


def raw_status(url: str, method: str, target: str, headers: dict[str, str]) -> int:
    """The status of a request as written, which no client library would send."""
    address = urlsplit(url)
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in ({"Host": "lorry", "Content-Length": "0"} | headers).items()]
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=10) as connection:
        connection.sendall(("\r\n".join([*lines, "Connection: close"]) + "\r\n\r\n").encode())
        return int(connection.makefile("rb").readline().split()[1])


def private_routes(url: str) -> list[tuple[str, str]]:
    paths: dict[str, dict[str, Any]] = httpx2.get(f"{url}/openapi.json").json()["paths"]
    return [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, operations in paths.items()
        for method in operations
        if path not in OPEN
    ]


def test_no_trick_with_headers_opens_a_route_without_a_key(stack: Stack) -> None:
    for method, path in private_routes(stack.url):
        seen = {str(trick): raw_status(stack.url, method, path, trick) for trick in TRICKS}
        assert set(seen.values()) == {401}, (method, path, seen)


@pytest.mark.parametrize("form", CHANGED_PATHS)
def test_no_trick_with_the_address_opens_a_route_without_a_key(stack: Stack, form: str) -> None:
    for method, path in private_routes(stack.url):
        status = raw_status(stack.url, method, form.format(path), {})
        assert status in (400, 401, 404, 405), (method, path, status)


def test_the_absolute_form_of_an_address_is_no_way_around_the_key(stack: Stack) -> None:
    for method, path in private_routes(stack.url):
        assert raw_status(stack.url, method, f"{stack.url}{path}", {}) in (400, 401, 404), (method, path)


def as_tenant(stack: Stack, tenant: str) -> httpx2.Client:
    headers = {"authorization": f"Bearer {stack.world.key(tenant)}"}
    return httpx2.Client(base_url=f"{stack.url}/v1", headers=headers, timeout=30)


def theirs(client: httpx2.Client, world: World, tenant: str) -> dict[str, str]:
    """One of everything of a tenant."""
    world.adapter(tenant, "secret")
    line = json.dumps({"custom_id": "a", "model": "secret", "document": "x"})
    ndjson = {"content-type": "application/x-ndjson"}
    hook = {"name": "crm", "url": "https://hooks.example.com/", "event_types": ["job.failed"]}
    return {
        "jobs": client.post("/jobs", json={"model": "secret", "document": "x"}).json()["id"],
        "batches": client.post("/batches", content=line, headers=ndjson).json()["id"],
        "files": client.post("/files", data={"purpose": "batch"}, files={"file": ("a", line.encode())}).json()["id"],
        "webhook_endpoints": client.post("/webhook_endpoints", json=hook).json()["id"],
    }


def said(answer: httpx2.Response) -> tuple[int, dict[str, Any]]:
    """Status and body without the parts that are each request's own."""
    own = ("instance", "request_id", "id", "created_at", "failed_at", "expires_at")
    return answer.status_code, {name: value for name, value in answer.json().items() if name not in own}


def test_what_is_anothers_answers_in_bodies_lines_and_cursors_as_what_is_missing(stack: Stack) -> None:
    with as_tenant(stack, "owner") as owner, as_tenant(stack, "curious") as curious:
        found = theirs(owner, stack.world, "owner")
        missing = {name: f"{foreign[:-32]}{uuid.uuid4().hex}" for name, foreign in found.items()}
        for name in found:
            pair = [said(curious.get(f"/{name}", params={"after": ids[name]})) for ids in (found, missing)]
            assert pair[0] == pair[1], name
            assert pair[0][0] == 400
        batch = {"endpoint": "/v1/completions"}
        pair = [
            said(curious.post("/batches", json=batch | {"input_file_id": ids["files"]})) for ids in (found, missing)
        ]
        assert pair[0] == pair[1]
        assert pair[0][0] == 404
        pair = [said(curious.post("/jobs", json={"model": name, "document": "x"})) for name in ("secret", "nobody")]
        assert pair[0] == pair[1]
        assert pair[0][0] == 404
        lines = [json.dumps({"custom_id": "a", "model": name, "document": "x"}) for name in ("secret", "nobody")]
        ndjson = {"content-type": "application/x-ndjson"}
        pair = [said(curious.post("/batches", content=line, headers=ndjson)) for line in lines]
        assert pair[0] == pair[1]
        assert pair[0][1]["errors"]["data"][0]["code"] == "model_not_found"
