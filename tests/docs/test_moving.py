"""docs/moving-from-openai.md says what becomes of every field of OpenAI's bodies."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from registry import openai_body
from registry.errors import InvalidField
from registry.shapes import JobCreate
from tests.docs import pages

ROWS = pages.table(pages.read("moving-from-openai"), "Fields")
READ: dict[str, tuple[Callable[[dict[str, Any]], JobCreate], dict[str, Any]]] = {
    "chat": (openai_body.from_chat, {"model": "m", "messages": [{"role": "user", "content": "x"}]}),
    "completions": (openai_body.from_completion, {"model": "m", "prompt": "x"}),
}
VALUES: dict[str, list[Any]] = {
    "null": [None],
    "null; in a chat also false": [None],
    "false": [False],
    "true, false": [True, False],
    "`auto`, `default`": ["auto", "default"],
    "`none`, `auto`": ["none", "auto"],
    "0": [0],
    "1": [1],
    "[]": [[]],
    "{}": [{}],
    '""': [""],
    '["text"]': [["text"]],
    "any text; not used": ["u-1"],
}
NEUTRAL = [
    (name, kind, value)
    for names, of, accepted in ROWS
    if not accepted.startswith("served")
    for name in re.findall(r"\w+", names)
    for kind in (READ if of == "both" else [of])
    for value in VALUES[accepted]
]


def test_the_page_names_every_field() -> None:
    said = {name for names, _, _ in ROWS for name in re.findall(r"\w+", names)}
    known = (
        openai_body._PASSED | openai_body._REMARKS | {"messages", "prompt", "max_completion_tokens", "response_format"}
    )
    assert said == known | openai_body._NEUTRAL_CHAT.keys() | openai_body._NEUTRAL_COMPLETION.keys()


@pytest.mark.parametrize(("name", "kind", "value"), NEUTRAL)
def test_a_value_that_asks_for_nothing_is_accepted_and_another_is_refused_by_name(
    name: str, kind: str, value: Any
) -> None:
    read, body = READ[kind]
    assert read(body | {name: value}).model == "m"
    with pytest.raises(InvalidField) as caught:
        read(body | {name: {"something": "else"}})
    assert caught.value.param == name
