"""OpenAI's own client against completions: what it gets, and that its retries have no second effect."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest
from httpx2 import Client
from openai import OpenAI
from sqlalchemy import text

from registry.ids import from_wire
from registry.settings import Settings
from tests.api.finisher import Finisher
from tests.api.live import LiveApi
from tests.api.test_chat import CHAT, MESSAGES, job_count
from tests.world import World


@pytest.fixture
def live(settings: Settings) -> Iterator[LiveApi]:
    with LiveApi(settings) as running:
        yield running


@pytest.fixture
def client(live: LiveApi, world: World) -> OpenAI:
    """The official client, as its user gets it: with two retries."""
    world.base()
    return OpenAI(base_url=f"{live.url}/v1", api_key=world.key())


def test_the_official_client_completes(client: OpenAI, world: World) -> None:
    with Finisher(world):
        chat = client.chat.completions.create(model="Tiny", messages=MESSAGES)
        continued = client.completions.create(model="Tiny", prompt="The printer", max_tokens=5)
    assert chat.choices[0].message.content == continued.choices[0].text == "네, 요약입니다."
    assert chat.usage is not None
    assert chat.usage.total_tokens == 17
    assert chat.model_extra is not None
    assert chat.model_extra["lorry"]["job_id"].startswith("job_")


def test_the_official_client_does_not_submit_again_what_has_failed(client: OpenAI, world: World) -> None:
    with Finisher(world, error_code="generation_failed"), pytest.raises(openai.InternalServerError) as caught:
        client.completions.create(model="Tiny", prompt="x")
    assert caught.value.code == "generation_failed"
    assert "It failed. (Job job_" in caught.value.message
    assert caught.value.request_id
    assert job_count(world) == 1


def test_the_official_client_does_not_submit_again_what_takes_too_long(settings: Settings, world: World) -> None:
    world.base()
    with LiveApi(settings.model_copy(update={"completion_wait_s": 0.2})) as live:
        client = OpenAI(base_url=f"{live.url}/v1", api_key=world.key())
        with pytest.raises(openai.APIStatusError, match="GET /v1/jobs/job_") as caught:
            client.completions.create(model="Tiny", prompt="x")
    assert (caught.value.status_code, caught.value.code) == (504, "completion_timeout")
    assert job_count(world) == 1


def test_the_official_client_reads_why_it_is_limited(client: OpenAI, world: World) -> None:
    with world.db.transaction() as session:
        session.execute(text("INSERT INTO tenant_limits (tenant_id, tokens_per_day) VALUES ('acme', 0)"))
    with pytest.raises(openai.RateLimitError, match="tokens today") as caught:
        client.completions.create(model="Tiny", prompt="x")
    assert caught.value.code == "insufficient_quota"


class Proxy:
    """Passes requests on; the first answer to each is lost: a 503, or a closed connection."""

    def __init__(self, upstream: str, *, closes: bool) -> None:
        seen: list[str] = []
        self.counts = seen

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                with Client(timeout=30) as passing:
                    answer = passing.post(upstream + self.path, content=body, headers=headers)
                seen.append(self.headers["x-stainless-retry-count"])
                if len(seen) == 1 and closes:
                    self.close_connection = True
                    return
                self.send_response(503 if len(seen) == 1 else answer.status_code)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def make_batch(client: OpenAI, file_id: str, **more: Any) -> str:
    return client.batches.create(
        input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h", **more
    ).id


def completed(client: OpenAI, _: str, **more: Any) -> str:
    made = client.completions.create(model="Tiny", prompt="x", **more)
    return str(made.model_extra["lorry"]["job_id"])


@pytest.mark.parametrize("closes", [False, True], ids=["503", "closed"])
@pytest.mark.parametrize("with_key", [True, False], ids=["key", "none"])
@pytest.mark.parametrize("act", [make_batch, completed])
def test_an_answer_that_is_lost_on_the_way_is_one_effect(
    live: LiveApi, client: OpenAI, world: World, act: Callable[..., str], with_key: bool, closes: bool
) -> None:
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
    file_id = client.files.create(file=("in.jsonl", json.dumps(line).encode()), purpose="batch").id
    more = {"extra_headers": {"Idempotency-Key": "k"}} if with_key else {}
    with Proxy(live.url, closes=closes) as proxy, Finisher(world):
        made = act(client.with_options(base_url=f"{proxy.url}/v1"), file_id, **more)
    assert proxy.counts == ["0", "1"]
    kind = made.partition("_")[0]
    table = {"batch": "batches", "job": "jobs"}[kind]
    with world.db.transaction() as session:
        assert session.scalars(text(f"SELECT id FROM {table}")).all() == [from_wire(kind, made)]  # noqa: S608
