"""A document that is too long for its model: cut out of the middle, or in parts that end where sentences end.

Pure: texts, and where each token of them begins and ends. A character is never cut, nor what is written as one: a
letter and its accents, the letters of a Hangul syllable, an emoji made of several.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Span = tuple[int, int]
"""Where a token begins and ends in its text, in characters. Tokens that share a character have equal spans."""

CUT_MARK: Final = "\n[…]\n"
"""Stands where the middle was, so that the model does not read over it."""

_CLOSERS: Final = "[\"'”’»」』）)\\]】〉》]*"
# After Western marks only where blank space or a line's end follows (3.14, lorry.toml); after a Korean syllable also
# where the next sentence follows at once (했다.그리고). Marks of scripts that set no blanks end a sentence anyway.
_SENTENCE_END: Final = re.compile(
    rf"(?:[.!?…]+{_CLOSERS}(?=\s|\Z)|(?<=[가-힣])[.!?…]+{_CLOSERS}(?=[가-힣])"
    rf"|[。！？｡．؟۔।॥።։។၊။]+{_CLOSERS}|\n)\s*"
)
_BLANK: Final = re.compile(r"\s+")
_HANGUL_REST: Final = range(0x1160, 0x1200)
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f") | {chr(code) for code in range(0x1F3FB, 0x1F400)}


@dataclass(frozen=True, slots=True)
class Truncated:
    """A text without its middle. `dropped_tokens`: how many of its tokens are gone."""

    text: str
    dropped_tokens: int


def truncate(text: str, spans: Sequence[Span], keep: int) -> Truncated:
    """The first and last tokens of a text, `keep` together at most; the mark between them is not counted."""
    if len(spans) <= keep:
        return Truncated(text, 0)
    head_tokens = (keep + 1) // 2
    head = _whole_before(text, spans[head_tokens][0])
    tail = _whole_after(text, spans[len(spans) - (keep - head_tokens) - 1][1])
    dropped = sum(start >= head and end <= tail for start, end in spans)
    return Truncated(text[:head] + CUT_MARK + text[max(head, tail) :], dropped)


def split(text: str, spans: Sequence[Span], size: int, overlap: int) -> list[Span]:
    """Character ranges that cover the text in order, each of at most `size` tokens.

    Neighbours share up to `overlap` tokens (less than half of `size`), so that what is said across a border is in one
    of them. Ends are at the last end of a sentence, else at the last blank, else between characters.
    """
    cuts = _Cuts(text, spans)
    pieces: list[Span] = []
    start = end = 0
    while end < len(text):
        limit = cuts.limit(start, size)
        if limit <= end:  # a single character of more than `size` tokens, or an overlap that fills the piece
            start, limit = end, max(cuts.limit(end, size), end + 1)
        end = len(text) if limit >= len(text) else cuts.best(end, limit)
        pieces.append((start, end))
        start = cuts.overlapping(start, end, overlap)
    return pieces


class _Cuts:
    """Where a text may be cut."""

    def __init__(self, text: str, spans: Sequence[Span]) -> None:
        self._text = text
        self._starts = [start for start, _ in spans]
        self._sentences = [match.end() for match in _SENTENCE_END.finditer(text)]
        self._blanks = [match.end() for match in _BLANK.finditer(text)]

    def limit(self, start: int, size: int) -> int:
        """The farthest end of a piece of at most `size` tokens."""
        last = bisect_left(self._starts, start) + size
        return len(self._text) if last >= len(self._starts) else self._starts[last]

    def best(self, after: int, limit: int) -> int:
        """The best end of a piece, in (after, limit]."""
        for places in (self._sentences, self._blanks):
            at = bisect_right(places, limit)
            if at and places[at - 1] > after:
                return places[at - 1]
        whole = _whole_before(self._text, limit)
        return whole if whole > after else limit

    def overlapping(self, start: int, end: int, overlap: int) -> int:
        """Where the next piece begins: at a sentence or a word of the last `overlap` tokens before `end`, or there."""
        first = bisect_left(self._starts, end) - overlap
        if overlap < 1 or first < 1 or self._starts[first] <= start:
            return end
        if self._starts[first - 1] == self._starts[first]:  # inside a character of several tokens: begin after it
            first = bisect_right(self._starts, self._starts[first])
            if first >= len(self._starts):
                return end
        for places in (self._sentences, self._blanks):
            at = bisect_left(places, self._starts[first])
            if at < len(places) and places[at] < end:
                return places[at]
        return end


def _whole_before(text: str, at: int) -> int:
    """The nearest place at or before `at` that cuts nothing which is written as one."""
    while 0 < at < len(text) and _is_joined(text, at):
        at -= 1
    return at


def _whole_after(text: str, at: int) -> int:
    while 0 < at < len(text) and _is_joined(text, at):
        at += 1
    return at


def _is_joined(text: str, at: int) -> bool:
    before, after = text[at - 1], text[at]
    return (
        unicodedata.combining(after) > 0
        or unicodedata.category(after) in ("Mn", "Me", "Mc")
        or after in _JOINERS
        or before == "\u200d"
        or ord(after) in _HANGUL_REST
    )
