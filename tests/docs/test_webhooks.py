"""docs/webhooks.md: its snippets verify what Lorry signs, and its tables have every event, field and reason."""

from __future__ import annotations

import json
import re
import subprocess
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from api.webhook_shapes import EndpointCreate, EndpointUpdate
from registry.webhooks import targets
from registry.webhooks.endpoints import new_secret
from registry.webhooks.event_types import EVENT_TYPES, RESULTS
from tests.docs import pages

PAGE = pages.read("webhooks")
BODY = '{"type":"job.succeeded","data":{"text":"요약 🙂"}}'


def signed(secrets: list[str], at: float) -> dict[str, str]:
    """The headers of a delivery as the product makes them: the reference library signs."""
    moment = datetime.fromtimestamp(int(at), UTC)
    signatures = [Webhook(secret).sign("evt_1", moment, BODY) for secret in secrets]
    return {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(at)),
        "webhook-signature": " ".join(signatures),
    }


def accepts_python(secret: str, headers: dict[str, str], body: bytes) -> bool:
    (snippet,) = [block for block in pages.code_blocks(PAGE, "python") if "def verify" in block]
    names: dict[str, Any] = {}
    exec(snippet, names)  # noqa: S102
    try:
        names["verify"](secret, headers, body)
    except ValueError:
        return False
    return True


def accepts_node(secret: str, headers: dict[str, str], body: bytes) -> bool:
    (snippet,) = pages.code_blocks(PAGE, "javascript")
    call = f"verify({json.dumps(secret)}, {json.dumps(headers)}, Buffer.from({json.dumps(body.hex())}, 'hex'));"
    run = subprocess.run(["node", "-e", snippet + call], capture_output=True, text=True, check=False, timeout=30)
    assert run.returncode == 0 or "Error: too old" in run.stderr or "Error: not signed" in run.stderr, run.stderr
    return run.returncode == 0


@pytest.mark.parametrize("accepts", [accepts_python, accepts_node])
def test_the_snippet_accepts_what_lorry_signs_and_nothing_else(accepts: Any) -> None:
    secret, other, now = new_secret(), new_secret(), time.time()
    good = signed([secret], now)
    assert accepts(secret, good, BODY.encode())
    assert accepts(secret, signed([other, secret], now), BODY.encode())
    assert not accepts(other, good, BODY.encode())
    assert not accepts(secret, good, BODY.encode() + b" ")
    assert not accepts(secret, signed([secret], now - 310), BODY.encode())
    assert not accepts(secret, signed([secret], now + 310), BODY.encode())
    assert not accepts(secret, good | {"webhook-id": "evt_2"}, BODY.encode())
    assert not accepts(secret, good | {"webhook-timestamp": "soon"}, BODY.encode())
    assert not accepts(secret, good | {"webhook-signature": "v1, v2,x"}, BODY.encode())


def test_every_event_is_explained() -> None:
    assert [row[0] for row in pages.table(PAGE, "Events")] == [*EVENT_TYPES, RESULTS]


def test_what_lorry_adds_to_an_endpoint_is_explained_with_its_default() -> None:
    rows = {row[0]: row[1] for row in pages.table(PAGE, "An endpoint")}
    added = (EndpointCreate.model_fields.keys() | EndpointUpdate.model_fields.keys()) - {"name", "url"}
    assert rows.keys() == added
    assert {name: rows[name] for name in ("payload", "deliver")} == {"payload": "full", "deliver": "events"}


def test_every_reason_of_a_failed_attempt_is_explained() -> None:
    source = (pages.ROOT / "workers" / "egress.py").read_text("utf-8").partition("def _reason")[2]
    sender = (pages.ROOT / "workers" / "webhooks.py").read_text("utf-8")
    given = set(re.findall(r'(?:return|else) "(\w+)"', source)) | set(re.findall(r'Answer\(None, "(\w+)"', sender))
    table = PAGE.partition("| reason in the log |")[2].splitlines()[2:]
    explained = {match[1] for line in table if (match := re.match(r"\| `(\w+)` \|", line))}
    assert explained == given | set(targets._SENTENCES)
