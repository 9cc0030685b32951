"""OpenAI's bodies as jobs of ours."""

from __future__ import annotations

from typing import Any

import pytest

from registry.errors import BadRequest
from registry.openai_body import from_chat, from_completion

HELLO = [{"role": "user", "content": "Hello"}]


def chat(**fields: Any) -> Any:
    return from_chat({"model": "tickets", "messages": HELLO, **fields})


def test_served_fields_of_a_chat_are_passed_on() -> None:
    job = chat(temperature=0.5, top_p=0.9, stop=["\n"], seed=3, max_tokens=9, metadata={"k": "v"})
    assert job.body == {"messages": HELLO}
    assert (job.model, job.temperature, job.top_p, job.stops, job.seed) == ("tickets", 0.5, 0.9, ["\n"], 3)
    assert (job.max_tokens, job.metadata) == (9, {"k": "v"})


def test_served_fields_of_a_completion_are_passed_on() -> None:
    job = from_completion({"model": "tickets", "prompt": "Say", "max_tokens": 9, "stop": "x"})
    assert (job.body, job.max_tokens, job.stops) == ({"prompt": "Say"}, 9, ["x"])
    assert from_completion({"model": "m", "prompt": ["one"]}).body == {"prompt": "one"}


def test_max_completion_tokens_is_another_name_of_max_tokens() -> None:
    assert chat(max_completion_tokens=7).max_tokens == 7
    assert chat(max_completion_tokens=7, max_tokens=7).max_tokens == 7
    with pytest.raises(BadRequest) as caught:
        chat(max_completion_tokens=7, max_tokens=8)
    assert caught.value.param == "max_tokens"


def test_null_means_not_given() -> None:
    given = dict.fromkeys(("max_tokens", "temperature", "top_p", "stop", "seed", "metadata", "tools", "n", "user"))
    assert chat(**given) == chat()


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1}, {"stream": False}, {"frequency_penalty": 0}, {"presence_penalty": 0.0}, {"logit_bias": {}},
        {"user": "u-1"}, {"safety_identifier": "s"}, {"prompt_cache_key": "k"}, {"logprobs": False},
        {"top_logprobs": 0}, {"store": False}, {"service_tier": "auto"}, {"tools": []}, {"tool_choice": "none"},
        {"parallel_tool_calls": True}, {"modalities": ["text"]}, {"response_format": {"type": "text"}},
    ],
    ids=lambda fields: next(iter(fields)),
)  # fmt: skip
def test_a_value_that_asks_for_nothing_is_accepted_and_changes_nothing(fields: dict[str, Any]) -> None:
    assert chat(**fields) == chat()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"), ({"n": True}, "n"), ({"stream": True}, "stream"), ({"stream": 0}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"frequency_penalty": 0.1}, "frequency_penalty"),
        ({"logit_bias": {"1": 5}}, "logit_bias"), ({"user": 5}, "user"), ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"), ({"store": True}, "store"), ({"service_tier": "flex"}, "service_tier"),
        ({"tools": [{"type": "function"}]}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
        ({"modalities": ["audio"]}, "modalities"), ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"audio": {"voice": "x"}}, "audio"), ({"echo": False}, "echo"), ({"top_k": 5}, "top_k"),
        ({"document": "x"}, "document"), ({"base_model": "Tiny"}, "base_model"), ({"custom_id": "c"}, "custom_id"),
        ({"temperature": "warm"}, "temperature"), ({"max_tokens": 0}, "max_tokens"), ({"stop": [1]}, "stop"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else None,
)  # fmt: skip
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        chat(**fields)
    assert (caught.value.code, caught.value.param) == ("invalid_value", param)
    assert param in caught.value.message


@pytest.mark.parametrize(
    "fields",
    [{"best_of": 2}, {"echo": True}, {"suffix": "x"}, {"logprobs": 0}, {"messages": HELLO}, {"prompt": ["a", "b"]},
     {"prompt": [1, 2]}, {"prompt": []}],
    ids=lambda fields: next(iter(fields)),
)  # fmt: skip
def test_a_completion_has_its_own_list_of_what_is_not_served(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as caught:
        from_completion({"model": "m", "prompt": "x", **fields})
    assert caught.value.param == next(iter(fields))


def test_a_name_that_the_caller_made_up_is_not_repeated() -> None:
    with pytest.raises(BadRequest) as caught:
        chat(**{"My secret field": 1})
    assert caught.value.param is None
    assert "secret" not in caught.value.message


def test_text_parts_become_one_text_and_a_developer_is_the_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    job = from_chat({"model": "m", "messages": [{"role": "developer", "content": parts}, *HELLO]})
    assert job.body["messages"][0] == {"role": "system", "content": "a\nb"}


def test_members_of_a_message_that_say_nothing_are_dropped() -> None:
    answer: dict[str, Any] = {"role": "assistant", "content": "Hi", "refusal": None, "tool_calls": [], "name": None}
    assert chat(messages=[answer]).body["messages"] == [{"role": "assistant", "content": "Hi"}]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": [{"type": "text", "text": 5}]},
        {"role": "user", "content": "x", "name": "Kim"},
        {"role": "user", "content": "x", "weight": 1},
        {"role": "tool", "content": "x"},
        {"role": "user"},
        "hello",
    ],
    ids=str,
)
def test_a_message_that_is_not_plain_text_is_refused(message: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        chat(messages=[message])
    assert (caught.value.param or "").startswith("messages[0]")


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_field_is_named(missing: str) -> None:
    body = {"model": "m", "messages": HELLO}
    del body[missing]
    with pytest.raises(BadRequest) as caught:
        from_chat(body)
    assert caught.value.param == missing


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_text_that_cannot_be_stored_is_invalid_text(text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        chat(messages=[{"role": "user", "content": text}])
    assert caught.value.code == "invalid_text"
