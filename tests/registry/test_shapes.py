"""Wire forms: one input exactly, texts that can be stored, and errors that never repeat what was sent."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from registry.shapes import JobCreate, Timing

GOOD: dict[str, Any] = {"model": "tickets", "document": "text"}
SECRET = "my-very-secret-words"


def refusal(**fields: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        JobCreate.model_validate(fields)
    return caught.value


def places(error: ValidationError) -> set[str]:
    return {".".join(map(str, part["loc"])) for part in error.errors()}


@pytest.mark.parametrize(
    "inputs",
    [
        {},
        {"document": None},
        {"document": "a", "prompt": "b"},
        {"document": "a", "messages": [{"role": "user", "content": "x"}]},
        {"document": "a", "prompt": "b", "messages": [{"role": "user", "content": "x"}]},
    ],
)
def test_exactly_one_input_is_asked_for(inputs: dict[str, Any]) -> None:
    error = refusal(model="tickets", **inputs)
    given_names = [name for name in ("document", "messages", "prompt") if inputs.get(name)]
    assert f"exactly one of document, messages, prompt (got {', '.join(given_names) or 'none'})" in str(error)


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        ({"document": "a"}, {"document": "a"}),
        ({"prompt": "b"}, {"prompt": "b"}),
        ({"messages": [{"role": "user", "content": ""}]}, {"messages": [{"role": "user", "content": ""}]}),
    ],
)
def test_the_body_is_the_one_input(inputs: dict[str, Any], body: dict[str, Any]) -> None:
    assert JobCreate.model_validate({"model": "m", **inputs}).body == body
    assert JobCreate.model_validate_json(json.dumps({"model": "m", **inputs})).body == body


@pytest.mark.parametrize("bad", ["a\x00b", "\x00", "a\ud800b", "\udfff", "\udc00\ud800"])
@pytest.mark.parametrize(
    "place", ["document", "prompt", "messages", "model", "custom_id", "base_model", "stop", "metadata", "key"]
)
def test_text_that_cannot_be_stored_is_refused_wherever_it_stands(place: str, bad: str) -> None:
    fields: dict[str, Any] = dict(GOOD)
    if place in ("prompt", "messages"):
        del fields["document"]
    values: dict[str, Any] = {
        "messages": [{"role": "user", "content": bad}],
        "stop": ["ok", bad],
        "metadata": {"k": bad},
        "key": {bad: "v"},
    }
    fields["metadata" if place == "key" else place] = values.get(place, bad)
    assert any(where.startswith("metadata" if place == "key" else place) for where in places(refusal(**fields)))


@hypothesis_settings(max_examples=100, deadline=None)
@given(text=st.text(min_size=1, max_size=50))
def test_every_other_text_passes_unchanged(text: str) -> None:
    storable = "\x00" not in text and not re.search("[\ud800-\udfff]", text)
    if storable:
        assert JobCreate.model_validate({"model": "m", "document": text}).document == text
    else:
        refusal(model="m", document=text)


def test_unknown_fields_are_named() -> None:
    assert places(refusal(**GOOD, max_token=5, n=2)) == {"max_token", "n"}
    message = {"role": "user", "content": "x", "name": "y"}
    assert "messages.0.name" in places(refusal(model="m", messages=[message]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", ""),
        ("model", 5),
        ("model", "x" * 513),
        ("document", ""),
        ("document", 5),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("max_tokens", "5"),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", float("inf")),
        ("stop", [""]),
        ("stop", ["x"] * 17),
        ("stop", [5]),
        ("seed", -1),
        ("seed", 2**63),
        ("metadata", {"": "x"}),
        ("metadata", {"k": 5}),
        ("metadata", {"k": "v" * 513}),
        ("metadata", {str(n): "v" for n in range(17)}),
        ("custom_id", ""),
    ],
)
def test_a_value_out_of_bounds_is_refused_at_its_field(field: str, value: Any) -> None:
    assert {place.partition(".")[0] for place in places(refusal(**{**GOOD, field: value}))} == {field}


@pytest.mark.parametrize(
    "messages",
    [[], [{"role": "tool", "content": "x"}], [{"role": "user"}], [{"role": "user", "content": ["x"]}], "x", [5]],
)
def test_messages_that_are_no_conversation_are_refused(messages: Any) -> None:
    assert all(place.startswith("messages") for place in places(refusal(model="m", messages=messages)))


def test_errors_never_repeat_what_was_sent() -> None:
    sent: list[dict[str, Any]] = [
        {**GOOD, "document": SECRET + "\x00"},
        {**GOOD, "document": SECRET, "prompt": SECRET},
        {**GOOD, "max_tokens": SECRET},
        {**GOOD, "temperature": SECRET},
        {**GOOD, "stop": [SECRET + "\x00", 5]},
        {**GOOD, "metadata": {"k": SECRET * 50}},
        {**GOOD, "custom_id": SECRET * 50},
        {**GOOD, "model": {SECRET: SECRET}},
        {"model": "m", "messages": [{"role": SECRET, "content": SECRET}]},
        {"model": "m", "messages": [{"role": "user", "content": [SECRET]}]},
    ]
    for fields in sent:
        error = refusal(**fields)
        assert SECRET not in str(error)
        assert SECRET not in str(error.errors(include_input=False))


def test_one_stop_is_a_list_of_one() -> None:
    for stop, stops in (("\n", ["\n"]), (["a", "b"], ["a", "b"]), ([], [])):
        assert JobCreate.model_validate({**GOOD, "stop": stop}).stops == stops


def test_timing_of_the_bare_base_has_no_swap() -> None:
    timing = Timing.model_validate(
        {"queued_ms": 1, "held_ms": 1, "swap": None, "prefill_ms": 1, "decode_ms": 1, "other_ms": 0, "total_ms": 4}
        | {"running_batch": {"jobs": 1, "adapters": 0}}
    )
    assert timing.swap is None
