"""Every call of OpenAI's package that Lorry serves, against a running stack; prints as JSON what the client saw.

Runs under an interpreter that has this package and nothing of ours: `python client_walk.py < plan.json`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import openai
from openai import OpenAI

if TYPE_CHECKING:
    from tests.conformance.client_receiver import Receiver
else:
    from client_receiver import Receiver

MESSAGES: Any = [{"role": "user", "content": "프린터가 걸려요. The printer jams."}]
EVENTS: Any = ["job.succeeded", "batch.completed"]
PATIENCE_S = 60.0


def lines(count: int, *, model: str = "tickets", max_tokens: int = 8) -> bytes:
    """A batch's input."""
    body = {"model": model, "messages": MESSAGES, "max_tokens": max_tokens}
    made = [
        {"custom_id": f"t-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        for number in range(1, count + 1)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in made)


def eventually(look: Callable[[], Any]) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        if time.monotonic() > deadline:
            raise SystemExit("the client waited in vain")
        time.sleep(0.1)
    return found


def upload(client: OpenAI, content: bytes, name: str = "in.jsonl") -> Any:
    """A file of ours."""
    return client.files.create(file=(name, content), purpose="batch")


def batch_of(client: OpenAI, file_id: str, **more: Any) -> Any:
    """A batch of an uploaded file."""
    return client.batches.create(
        input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h", **more
    )


def ended(client: OpenAI, batch_id: str) -> Any:
    """The batch once nothing of it runs any more."""
    finals = ("completed", "failed", "cancelled", "expired")
    return eventually(lambda: (b := client.batches.retrieve(batch_id)).status in finals and b)


def files(client: OpenAI) -> dict[str, Any]:
    """Create, retrieve, list over several pages, content, delete."""
    content = lines(2)
    made = [upload(client, content, f"{name}.jsonl") for name in "abc"]
    found = client.files.retrieve(made[0].id)
    return {
        "made": [file.id for file in made],
        "found": [found.id, found.filename, found.bytes == len(content), found.purpose, found.status, found.object],
        "listed": [file.id for file in client.files.list(limit=2, order="asc")],
        "first_page": len(client.files.list(limit=2).data),
        "same_bytes": client.files.content(made[1].id).read() == content,
        "deleted": [client.files.delete(file.id).deleted for file in made],
        "left": len(client.files.list().data),
    }


def batches(client: OpenAI) -> dict[str, Any]:
    """Create, poll, read the output and the errors, list over several pages."""
    bad = json.dumps({"custom_id": "bad", "method": "POST", "url": "/v1/chat/completions", "body": {"n": 2}}).encode()
    source = upload(client, lines(12) + bad + b"\n")
    made = batch_of(client, source.id, metadata={"lorry.on_bad_line": "skip", "night": "1"})
    end = ended(client, made.id)
    refused = batch_of(client, upload(client, bad).id)
    output = [json.loads(line) for line in client.files.content(end.output_file_id).text.splitlines()]
    errors = [json.loads(line) for line in client.files.content(end.error_file_id).iter_lines()]
    return {
        "made": [made.object, made.status, made.metadata, made.input_file_id == source.id],
        "end": [end.status, end.request_counts.total, end.request_counts.completed, end.request_counts.failed],
        "usage": end.usage.total_tokens == sum(line["response"]["body"]["usage"]["total_tokens"] for line in output),
        "output": [line["custom_id"] for line in output],
        "texts": all(line["response"]["body"]["choices"][0]["message"]["content"] for line in output),
        "errors": [[line["custom_id"], line["response"]["status_code"]] for line in errors],
        "refused": [refused.status, refused.errors.data[0].line, refused.errors.data[0].param],
        "pages": [batch.id for batch in client.batches.list(limit=1)] == [refused.id, made.id],
    }


def cancel(client: OpenAI) -> dict[str, Any]:
    """Cancel twice; then, after the end, once more."""
    made = batch_of(client, upload(client, lines(200, max_tokens=300)).id)
    first, second = client.batches.cancel(made.id), client.batches.cancel(made.id)
    end = ended(client, made.id)
    return {
        "asked": [first.status, second.status],
        "end": [end.status, end.request_counts.completed + end.request_counts.failed],
        "too_late": refusal(lambda: client.batches.cancel(made.id)),
    }


def completions(client: OpenAI) -> dict[str, Any]:
    """At once, parsed and raw."""
    chat = client.chat.completions.create(model="tickets", messages=MESSAGES, max_tokens=8, n=1, user="u1")
    raw = client.chat.completions.with_raw_response.create(model="Tiny", messages=MESSAGES, max_tokens=8)
    text = client.completions.create(model="tickets@1", prompt="The printer", max_tokens=8)
    assert chat.usage is not None
    return {
        "chat": [chat.object, chat.model, bool(chat.choices[0].message.content), chat.choices[0].finish_reason],
        "usage": chat.usage.prompt_tokens + chat.usage.completion_tokens == chat.usage.total_tokens,
        "request_id": [chat._request_id, raw.headers["x-request-id"]],
        "raw": [raw.status_code, raw.parse().model],
        "limits": raw.headers["x-ratelimit-limit-requests"],
        "text": [text.object, text.model, bool(text.choices[0].text)],
    }


def models(client: OpenAI) -> dict[str, Any]:
    """All, and one."""
    return {
        "listed": [model.id for model in client.models.list()],
        "found": [(found := client.models.retrieve("tickets@1")).id, found.object, found.created > 0],
    }


def idempotency(client: OpenAI) -> dict[str, Any]:
    """The same key twice, then with another body."""
    source = upload(client, lines(1))
    key = {"Idempotency-Key": "night-1"}
    first = batch_of(client, source.id, extra_headers=key)
    again = client.batches.with_raw_response.create(
        input_file_id=source.id, endpoint="/v1/chat/completions", completion_window="24h", extra_headers=key
    )
    return {
        "same": again.parse().id == first.id,
        "replayed": again.headers["idempotency-replayed"],
        "other_body": refusal(lambda: batch_of(client, source.id, metadata={"a": "b"}, extra_headers=key)),
    }


def refusal(act: Callable[[], Any]) -> dict[str, Any]:
    """The error that the client raises."""
    try:
        act()
    except openai.APIStatusError as error:
        headers = error.response.headers
        body: Any = error.body
        return {
            "class": type(error).__name__,
            "status": error.status_code,
            "code": error.code,
            "param": error.param,
            "type": error.type,
            "shown": str(error),
            "said": body["message"],
            "request_id": error.request_id,
            "retry_after": headers.get("retry-after"),
            "should_retry": headers.get("x-should-retry"),
        }
    return {"class": None}


def errors(client: OpenAI, plan: dict[str, Any]) -> dict[str, Any]:
    """One of every class."""

    def completed(with_client: OpenAI, **changes: Any) -> Callable[[], Any]:
        return lambda: with_client.completions.create(**{"model": "Tiny", "prompt": "x", "max_tokens": 1, **changes})

    def other(key: str, url: str = plan["url"]) -> OpenAI:
        return client.with_options(api_key=key, base_url=f"{url}/v1", max_retries=0)

    missing = f"batch_{'0' * 32}"
    busy = [refusal(lambda: other(plan["busy_key"]).batches.cancel(missing)) for _ in range(3)]
    return {
        "bad_request": refusal(completed(client, n=2)),
        "authentication": refusal(completed(other("lorry_nobody"))),
        "not_found": refusal(lambda: client.batches.retrieve(missing)),
        "model_not_found": refusal(completed(client, model="nothing")),
        "quota": refusal(completed(other(plan["spent_key"]))),
        "rate_limit": busy[-1],
        "unavailable": refusal(completed(other(plan["key"], plan["down_url"]))),
    }


def webhooks(client: OpenAI, plan: dict[str, Any]) -> dict[str, Any]:
    """Deliveries of a job and a batch, unwrapped where they arrive."""
    receiver = Receiver(client, plan["hook_port"])
    wishes = {"name": "crm", "url": f"http://127.0.0.1:{plan['hook_port']}/", "event_types": EVENTS}
    # Version 2 knows how to verify, not how to make endpoints.
    made: Any = client.post("/webhook_endpoints", body=wishes, cast_to=object)
    receiver.secret = made["signing_secret"]
    done = client.completions.create(model="Tiny", prompt="x", max_tokens=2)
    batch = batch_of(client, upload(client, lines(3)).id)
    # Batches of earlier steps may end meanwhile: they are announced as well.
    wanted = {("job.succeeded", done.lorry["job_id"]), ("batch.completed", batch.id)}  # type: ignore[attr-defined]
    eventually(lambda: {(event.type, event.data.id) for event in receiver.events} >= wanted)
    client.delete(f"/webhook_endpoints/{made['id']}", cast_to=object)
    receiver.close()
    return {
        "kinds": sorted({type(event).__name__ for event in receiver.events if event.type == "batch.completed"}),
        "ids": all(event.id.startswith("evt_") and event.object == "event" for event in receiver.events),
        "forged": sorted(set(receiver.forged)),
    }


def walk(plan: dict[str, Any]) -> dict[str, Any]:
    """The whole report."""
    client = OpenAI(base_url=f"{plan['url']}/v1", api_key=plan["key"])
    steps = (files, batches, cancel, completions, models, idempotency)
    report: dict[str, Any] = {step.__name__: step(client) for step in steps}
    return report | {
        "version": openai.__version__,
        "errors": errors(client, plan),
        "webhooks": webhooks(client, plan),
    }


if __name__ == "__main__":
    json.dump(walk(json.load(sys.stdin)), sys.stdout)
