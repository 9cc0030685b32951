"""Splitting bytes into lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from registry.ndjson import Line, LineSplitter

BOM = b"\xef\xbb\xbf"


def lines_of(*blocks: bytes, limit: int = 100) -> list[Line]:
    splitter = LineSplitter(limit)
    found = [line for block in blocks for line in splitter.feed(block)]
    return found + list(splitter.finish())


def test_lines_are_numbered_from_one_and_blank_ones_count_but_do_not_appear() -> None:
    assert lines_of(b"a\n\n \t\r\nb\r\nc") == [(1, b"a"), (4, b"b\r"), (5, b"c")]


def test_only_a_line_feed_ends_a_line() -> None:
    text = "a\u2028b\u0085c\x0bd\x0ce\rf\u200bg"
    assert lines_of(text.encode() + b"\n") == [(1, text.encode())]


def test_a_byte_order_mark_is_dropped_at_the_very_beginning_only() -> None:
    assert lines_of(BOM + b"a\n" + BOM + b"b") == [(1, b"a"), (2, BOM + b"b")]
    assert lines_of(BOM[:1], BOM[1:] + b"a") == [(1, b"a")]
    assert lines_of(BOM) == []


def test_a_line_at_the_limit_is_kept_and_one_above_it_is_dropped() -> None:
    assert lines_of(b"x" * 10 + b"\n" + b"y" * 11 + b"\nz", limit=10) == [(1, b"x" * 10), (2, None), (3, b"z")]


def test_the_bytes_of_an_overlong_line_are_not_held() -> None:
    splitter = LineSplitter(10)
    for _ in range(1000):
        assert list(splitter.feed(b"x" * 1000)) == []
        assert len(splitter._held) <= 10
    assert list(splitter.feed(b"\nb\n")) == [(1, None), (2, b"b")]
    assert list(splitter.finish()) == []


@given(
    st.lists(st.binary(max_size=12) | st.sampled_from([b"\n", b"\n\n", b"", b" ", BOM, b"x" * 25])), st.integers(1, 9)
)
def test_the_blocks_that_bytes_come_in_change_nothing(pieces: list[bytes], size: int) -> None:
    whole = b"".join(pieces)
    in_blocks = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert lines_of(*pieces, limit=20) == lines_of(whole, limit=20) == lines_of(*in_blocks, limit=20)


@given(st.binary())
def test_every_line_is_there_with_its_own_bytes(whole: bytes) -> None:
    expected = [
        (number, raw.removeprefix(BOM) if number == 1 else raw)
        for number, raw in enumerate(whole.split(b"\n"), start=1)
        if raw.removeprefix(BOM if number == 1 else b"").strip(b" \t\r")
    ]
    assert lines_of(whole, limit=10**6) == expected
