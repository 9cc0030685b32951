"""The first thing every client tries: a completion, by OpenAI's own package, through all processes."""

from __future__ import annotations

from openai import OpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from registry.embedded.ports import free_port
from tests.e2e.crew import Crew
from tests.e2e.test_api_killed import api
from tests.world import World


def test_the_official_client_completes_through_dispatcher_and_worker(crew: Crew, world: World) -> None:
    adapter = world.adapter()
    crew.dispatcher()
    crew.worker()
    api(crew, port := free_port())
    client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=world.key())
    messages: list[ChatCompletionUserMessageParam] = [{"role": "user", "content": "프린터가 걸려요."}]
    chat = client.chat.completions.create(model="tickets", messages=messages, max_tokens=8)
    continued = client.completions.create(model=f"tickets@{adapter.version}", prompt="The printer", max_tokens=8)
    assert chat.choices[0].message.content
    assert continued.choices[0].text
    assert chat.usage is not None
    assert chat.usage.completion_tokens <= 8
    assert chat.model_extra is not None
    assert chat.model_extra["lorry"]["timing"]["swap"]["state"] == "cold"
    assert continued.model_extra is not None
    assert continued.model_extra["lorry"]["timing"]["swap"]["state"] == "hot"
