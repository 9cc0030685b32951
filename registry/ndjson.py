"""Splitting bytes into lines as they arrive: on `\\n` and nothing else, in bounded memory.

Text functions split on U+2028, `\\x0b` and a dozen more, which are ordinary characters inside a JSON string.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r"


class Line(NamedTuple):
    """A line that is not blank. `raw` is None when it was longer than the limit; its bytes are gone."""

    number: int
    raw: bytes | None


class LineSplitter:
    """Give it the bytes in blocks of any size; it holds at most one unfinished line of `max_line_bytes`."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._held = bytearray()
        self._overlong = False
        self._number = 0

    def feed(self, block: bytes) -> Iterator[Line]:
        """The lines that this block completes."""
        first, *others = block.split(b"\n")
        if not others:
            self._hold(first)
            return
        self._hold(first)
        yield from self._taken()
        rest = others.pop()
        for raw in others:
            self._number += 1
            if self._number == 1 or len(raw) > self._max_line_bytes or not raw.strip(_BLANK):
                yield from self._line(raw, overlong=len(raw) > self._max_line_bytes)
            else:
                yield Line(self._number, raw)
        self._hold(rest)

    def finish(self) -> Iterator[Line]:
        """The last line, if it does not end in a line feed."""
        if self._held or self._overlong:
            yield from self._taken()

    def _hold(self, piece: bytes) -> None:
        if self._overlong or len(self._held) + len(piece) > self._max_line_bytes:
            self._overlong = True
            self._held.clear()
        else:
            self._held += piece

    def _taken(self) -> Iterator[Line]:
        raw, overlong = bytes(self._held), self._overlong
        self._held.clear()
        self._overlong = False
        self._number += 1
        yield from self._line(raw, overlong=overlong)

    def _line(self, raw: bytes, *, overlong: bool) -> Iterator[Line]:
        if overlong:
            yield Line(self._number, None)
            return
        if self._number == 1:
            raw = raw.removeprefix(_BOM)
        if raw.strip(_BLANK):
            yield Line(self._number, raw)
