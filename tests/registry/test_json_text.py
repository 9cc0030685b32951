"""The strict reader of tenants' JSON."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.errors import InvalidJson, InvalidText
from registry.json_text import MAX_DEPTH, parse_object

NUMBERS = st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.none() | st.booleans() | NUMBERS | st.text()
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.booleans())
def test_what_json_can_say_is_read_as_it_is(value: dict[str, Any], ascii_only: bool) -> None:
    written = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        assert parse_object(written) == value
    except InvalidText:
        assert not written.isascii()


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_by_name(raw: bytes) -> None:
    try:
        read = parse_object(raw)
    except (InvalidJson, InvalidText) as error:
        read = {"refused": error.message.startswith("The body ")}
    assert read.get("refused", True)


def test_depth_is_counted_outside_strings_only() -> None:
    deep = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert parse_object(deep)
    assert parse_object(b'{"a":"\\"' + b"[" * 1000 + b'"}') == {"a": '"' + "[" * 1000}
    with pytest.raises(InvalidJson, match="deeper"):
        parse_object(b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}")


HOSTILE = [b'{"' + b'\\"' * 10**6, b'{"a":"' + b"\\" * (2 * 10**6 + 1), b'"' * 2 * 10**6, b"[]" * 10**6]


@pytest.mark.parametrize("raw", HOSTILE, ids=["quotes", "backslashes", "strings", "arrays"])
def test_hostile_text_costs_time_in_proportion(raw: bytes) -> None:
    begun = time.perf_counter()
    with pytest.raises(InvalidJson):
        parse_object(raw)
    assert time.perf_counter() - begun < 2


VALUES_REFUSED = [b"1e400", b"-1e400", b"NaN", b"1" * 65, b'1,"a":1']


@pytest.mark.parametrize("value", VALUES_REFUSED)
def test_the_refusal_says_what_without_the_text(value: bytes) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse_object(b'{"a":' + value + b"}", "Line 7")
    assert caught.value.message.startswith(("Line 7 contains", "Line 7 names"))
    assert "1" * 3 not in caught.value.message
