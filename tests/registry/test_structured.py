"""Which JSON schemas are taken at submission, and in what words the others are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from registry import openai_body
from registry.errors import InvalidField
from registry.jobs import input_body
from registry.shapes import JobCreate
from registry.structured import MAX_BYTES, json_schema_text
from registry.validation import checked

TICKET = {
    "$defs": {"tag": {"enum": ["printer", "network"]}},
    "type": "object",
    "title": "한글",
    "properties": {
        "summary": {"type": "string", "maxLength": 200},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 4},
        "priority": {"type": "integer", "minimum": 1, "maximum": 5},
        "due": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "required": ["summary", "tags"],
    "additionalProperties": False,
}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"type": "array", "items": schema}
    return schema


def test_an_ordinary_schema_is_taken_as_it_is() -> None:
    assert json.loads(json_schema_text(TICKET)) == TICKET
    assert json_schema_text(nested(8))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "object", "patternProperties": {}}, "patternProperties is not served"),
        ({"비밀": 1}, "a keyword is not served"),
        ({"allOf": [{"type": "string"}]}, "allOf is not served"),
        ({"$ref": "https://example.com/schema"}, "only point into the schema itself"),
        ({"$ref": "#/$defs/none"}, "points to nothing"),
        ({"type": "string", "pattern": "a" * 257}, "at most 256 characters"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": "((a{1,99}){1,99})"}, "repeats more than"),
        ({"type": "string", "pattern": "a", "maxLength": 3}, "not served"),
        ({"type": "string", "maxLength": 10**9}, "maxLength"),
        ({"type": "string", "maxLength": True}, "maxLength"),
        ({"maxLength": 3}, "only beside its type"),
        ({"anyOf": [{"type": "string"}], "type": "object"}, "together with other limits"),
        ({"type": "frob"}, "type has to be"),
        ({"enum": []}, "at least one entry"),
        ({"properties": []}, "has to be an object"),
        ({"type": "object", "required": "a"}, "list of names"),
        ({"type": "array", "items": True}, "has to be an object"),
        ({"type": "string", "format": "colour"}, "format has to be one of"),
        ({"title": "x" * MAX_BYTES}, "bytes"),
        ({"title": "\0"}, "NUL"),
        (nested(9), "nests more than"),
    ],
)
def test_what_the_engine_would_pass_over_or_choke_on_is_refused_by_name(schema: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        json_schema_text(schema)
    assert "비밀" not in str(refused.value)


def of_chat(**response_format: Any) -> JobCreate:
    messages = [{"role": "user", "content": "hi"}]
    return openai_body.from_chat({"model": "m", "messages": messages, "response_format": response_format})


def test_a_chat_and_a_job_carry_the_schema_to_the_worker() -> None:
    wrapped = {"type": "json_schema", "json_schema": {"name": "ticket", "schema": TICKET, "strict": True}}
    for job in (of_chat(**wrapped), checked(JobCreate, {"model": "m", "document": "d", "response_format": wrapped})):
        assert json.loads(input_body(job, 9)["sampling"]["json_schema"]) == TICKET
    assert input_body(of_chat(type="json_object"), 9)["sampling"]["json_schema"] == '{"type":"object"}'
    assert "json_schema" not in input_body(of_chat(type="text"), 9)["sampling"]


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "json_schema"},
        {"type": "grammar"},
        {"type": "json_object", "json_schema": {"name": "n", "schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"not": {}}}},
        {"type": "json_schema", "json_schema": {"name": "n"}},
    ],
)
def test_a_bad_response_format_is_refused_as_that_field(bad: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        of_chat(**bad)
    assert refused.value.param == "response_format"


def test_only_a_document_can_be_shortened_or_divided() -> None:
    assert checked(JobCreate, {"model": "m", "document": "d", "on_overflow": "truncate"}).on_overflow == "truncate"
    with pytest.raises(InvalidField, match="only a document"):
        checked(JobCreate, {"model": "m", "prompt": "p", "on_overflow": "map_reduce"})
