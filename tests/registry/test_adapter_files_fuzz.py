"""Fuzz of the adapter gate's readers: whatever the bytes, the answer is a result or AdapterRejected, nothing else."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.adapter_files import header, problems
from registry.adapter_files.patterns import Pattern, UnsupportedPatternError
from registry.adapter_files.ranks import PatternTable
from registry.errors import AdapterRejected
from tests.registry.adapter_corpus import file_bytes, good, header_of

ADAPTER = good(rank=2)
DATA = b"".join(item.data for item in ADAPTER.tensors.values())
HEADER = json.dumps(header_of(ADAPTER.tensors)).encode()
WHOLE = file_bytes(HEADER, DATA)
SHAPES = {"model.layers.0.self_attn.q_proj": (64, 64)}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def _read(raw: bytes) -> bool:
    """Whether the reader accepts the file; any error but AdapterRejected passes through and fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adapter_model.safetensors"
        path.write_bytes(raw)
        try:
            tensors = header.read(path)
        except AdapterRejected:
            return False
        assert sum(info.end - info.start for info in tensors.values()) <= len(raw)
        return True


def test_the_unchanged_file_is_read() -> None:
    assert _read(WHOLE)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_refused(raw: bytes) -> None:
    assert not _read(raw)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_as_header_are_refused(raw: bytes) -> None:
    assert not _read(file_bytes(raw, b"x"))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(HEADER) + 7), st.binary(min_size=0, max_size=6), st.integers(0, 6))
def test_a_mutated_header_never_breaks_the_reader(at: int, put: bytes, cut: int) -> None:
    _read(WHOLE[:at] + put + WHOLE[at + cut :])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(ADAPTER.tensors)), st.sampled_from(["dtype", "shape", "data_offsets", "other"]), JSON)
def test_a_field_of_any_kind_never_breaks_the_reader(name: str, field: str, value: object) -> None:
    entries = header_of(ADAPTER.tensors)
    entries[name][field] = value
    _read(file_bytes(json.dumps(entries).encode(), DATA))


@settings(max_examples=250, deadline=None)
@given(st.sampled_from([*sorted(ADAPTER.config), "auto_map", "new_option"]), JSON)
def test_a_config_field_of_any_kind_never_breaks_the_gate(field: str, value: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ADAPTER.having(**{field: value}).write(Path(folder))
        for problem in problems(Path(folder), base_shapes=SHAPES, base_names={"x"}, max_rank=8, max_bytes=2**20):
            assert problem.message.isprintable()


PIECES = st.sampled_from(
    ["a", "b", ".", r"\.", r"\d", "[ab]", "[^a]", "(a|b)", "(?:ab|a)", "a*", "b+", "a?", ".*?", "a{1,2}"]
)
EXPRESSIONS = st.lists(PIECES, max_size=6).map("".join) | st.tuples(
    st.lists(PIECES, max_size=3).map("".join), st.lists(PIECES, max_size=3).map("".join)
).map("|".join)


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS, st.text("ab.0", max_size=8))
def test_a_pattern_matches_what_re_fullmatch_matches(expression: str, text: str) -> None:
    assert Pattern(expression).matches(text) == bool(re.fullmatch(expression, text))


@settings(max_examples=300, deadline=None)
@given(st.text("ab.|()[]*+?{},12^$\\bdw-", max_size=24))
def test_any_pattern_is_matched_like_re_or_refused(expression: str) -> None:
    try:
        pattern = Pattern(expression)
    except UnsupportedPatternError:
        return
    for text in ("", "a", "ab", "a.b", "bb1", "aa11"):
        assert pattern.matches(text) == bool(re.fullmatch(expression, text))


@pytest.mark.timeout(5)
@pytest.mark.parametrize("expression", ["(a|a)" * 80 + "x", "a?" * 200 + "x", ".*" * 200 + "x", "(|a)" * 100 + "x"])
def test_a_pattern_made_to_backtrack_is_matched_at_once(expression: str) -> None:
    assert not Pattern(expression).matches("a" * 60)


@pytest.mark.parametrize(
    "key", ["(a|a)(a|a)(a|a)", "(a+)+", "(a|b)*", r"(\w+\s?)*", ".*.*.*", "a" * 200, "(?=a)", "a(", "[a"]
)
def test_a_free_rank_pattern_key_is_refused(key: str) -> None:
    assert PatternTable({key: 8}).unsupported == [key]


def test_the_first_matching_rank_pattern_key_decides() -> None:
    table = PatternTable({"layers.0.self_attn.q_proj": 4, "q_proj": 8, r"layers\.\d+\.mlp\.(up|down)_proj": 2})
    assert table.find("model.layers.0.self_attn.q_proj") == 4
    assert table.find("model.layers.1.self_attn.q_proj") == 8
    assert table.find("model.layers.31.mlp.down_proj") == 2
    assert table.find("model.layers.1.self_attn.xq_proj") is None
