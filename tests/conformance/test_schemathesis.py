"""Schemathesis on the OpenAPI of a running stack: no server error, and nothing that the document does not say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.conformance.conftest import Stack

HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
MOST_OPERATIONS = 30
"""Of 40: pushing an adapter takes files, a test event a receiver, and some things end only once."""
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)


def explored(stack: Stack, folder: Path, *options: str) -> None:
    """Run Schemathesis with a key of its own tenant, which has one of everything. AssertionError with its report, and
    when hardly anything of what it sent was taken: that would show little."""
    key = stack.world.key("explorer")
    folder.joinpath("known.json").write_text(json.dumps(one_of_everything(stack, key)))
    argv = [sys.executable, "-m", "schemathesis.cli", "run", f"{stack.url}/openapi.json", "--no-color",
            "--header", f"Authorization: Bearer {key}", "--checks", ",".join(CHECKS), "--request-timeout", "60",
            "--generation-deterministic", "--continue-on-failure", "--report-har-path", str(folder / "all.har"),
            *options]  # fmt: skip
    done = subprocess.run(
        argv,
        cwd=folder,
        env=os.environ | {"SCHEMATHESIS_HOOKS": str(HOOKS), "KNOWN": str(folder / "known.json")},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    served = taken(folder / "all.har")
    print(f"{done.stdout}\n{sum(served.values())} operations have taken a request.")  # noqa: T201
    assert sum(served.values()) >= MOST_OPERATIONS, served


def taken(har: Path) -> dict[tuple[str, ...], bool]:
    """By operation: whether at least one request to it was answered with a 2xx."""
    served: dict[tuple[str, ...], bool] = {}
    for entry in json.loads(har.read_text("utf-8"))["log"]["entries"]:
        # /v1/jobs/{id}/cancel: things and ids take turns.
        things = urlsplit(entry["request"]["url"]).path.removeprefix("/v1").split("/")[1:]
        operation = (entry["request"]["method"], *things[::2], str(len(things)))
        served[operation] = served.get(operation, False) or 200 <= entry["response"]["status"] < 300
    return served


def one_of_everything(stack: Stack, key: str) -> dict[str, Any]:
    """What the hooks put into requests: see there."""
    stack.world.adapter("explorer")
    with httpx2.Client(base_url=f"{stack.url}/v1", headers={"authorization": f"Bearer {key}"}, timeout=30) as client:
        endpoint = {"name": "crm", "url": f"http://127.0.0.1:{stack.hook_port}/", "event_types": ["job.cancelled"]}
        kept, doomed = things(client, endpoint), things(client, endpoint)
        # Nobody listens there: the sample event fails, and is in the log.
        client.post(f"/webhook_endpoints/{kept['endpoint_id']}/test", json={"event_type": "job.cancelled"})
        log = client.get(f"/webhook_endpoints/{kept['endpoint_id']}/deliveries").json()
    prompt = {"model": "tickets", "prompt": "The printer", "max_tokens": 2}
    chat = {"model": "Tiny", "messages": [{"role": "user", "content": "The printer"}], "max_tokens": 2}
    bodies = {
        "/v1/jobs": {"model": "tickets@1", "document": "The printer jams."},
        "/v1/completions": prompt,
        "/v1/chat/completions": chat,
        "/v1/batches": {"input_file_id": kept["file_id"], "endpoint": "/v1/completions"},
        "/v1/adapters/{adapter}/activate": {"version": 1},
        "/v1/webhook_endpoints": endpoint,
        "/v1/webhook_endpoints/{endpoint_id}": {},
        "/v1/webhook_endpoints/{endpoint_id}/test": {"event_type": "job.cancelled"},
    }
    return {"kept": kept | {"delivery_id": log["data"][0]["id"]}, "doomed": doomed, "bodies": bodies}


def things(client: httpx2.Client, endpoint: dict[str, Any]) -> dict[str, str]:
    """Values of path parameters, by their names; each names something new."""

    def made(path: str, **request: Any) -> str:
        answer = client.post(path, **request)
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    line = json.dumps({"custom_id": "a", "model": "tickets", "document": "The printer jams."}).encode()
    return {
        "job_id": made("/jobs", json={"model": "tickets", "document": "The printer jams."}),
        "batch_id": made("/batches", content=line, headers={"content-type": "application/x-ndjson"}),
        "file_id": made("/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", line)}),
        "endpoint_id": made("/webhook_endpoints", json=endpoint),
        "adapter": "tickets",
        "model": "tickets@1",
    }


def test_nothing_undocumented_comes_of_odd_requests(stack: Stack, tmp_path: Path) -> None:
    explored(stack, tmp_path, "--phases", "examples,fuzzing", "--max-examples", "6", "--no-shrink")


@pytest.mark.long
def test_nothing_undocumented_comes_of_very_many_odd_requests(stack: Stack, tmp_path: Path) -> None:
    explored(stack, tmp_path, "--max-examples", "30")
