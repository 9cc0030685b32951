"""Patterns that tenants write into `adapter_config.json`, matched without backtracking.

PEFT lets `target_modules` be a regular expression. Python's `re` can be made to run for hours by a short hostile one,
so it is matched here as a set of positions: every part of the pattern maps the positions where it may start to those
where it may end, and the work is bounded by pattern length times text length. Only the common syntax is known; the rest
is refused with `pattern_unsupported`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

MAX_PATTERN: Final = 512
MAX_DEPTH: Final = 8

Positions = frozenset[int]
Node = Callable[[str, Positions], Positions]

_TOKEN: Final = re.compile(
    r"(?P<edge>\^|\$|\\b)"
    r"|(?P<atom>\\[dDwW]|\\[^a-zA-Z0-9]|\[\^?(?:\\[dw.\-]|[\w.\-])+\]|[^\\\[\]()|*+?{}^$])"
    r"|(?P<loop>[*+?]|\{\d{1,3}(?:,\d{0,3})?\})(?P<lazy>\?)?"
    r"|(?P<open>\((?:\?:)?)|(?P<close>\))|(?P<bar>\|)",
    re.ASCII,
)


class UnsupportedPatternError(ValueError):
    """The pattern is too long or uses syntax outside the common part."""


class Pattern:
    """A compiled pattern. Raises UnsupportedPatternError when made from one that cannot be bounded."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_PATTERN:
            raise UnsupportedPatternError(f"the pattern is longer than {MAX_PATTERN} characters")
        parser = _Parser(_tokens(source))
        self._node = parser.choice(0)[0]
        if parser.rest:
            raise UnsupportedPatternError("the pattern closes a group that it did not open")

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` matches, as `re.fullmatch` would say."""
        return len(text) in self._node(text, frozenset({0}))


def _tokens(source: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            raise UnsupportedPatternError(f"the pattern uses unknown syntax at character {position}")
        kind = str(found.lastgroup if found.lastgroup != "lazy" else "loop")
        tokens.append((kind, found[kind]))
        position = found.end()
    return tokens


class _Parser:
    """Recursive descent over the tokens; each method also says whether what it read contains a loop."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.rest = tokens[::-1]

    def choice(self, depth: int) -> tuple[Node, bool]:
        if depth > MAX_DEPTH:
            raise UnsupportedPatternError("the pattern nests groups too deeply")
        branches = [self._sequence(depth)]
        while self.rest and self.rest[-1][0] == "bar":
            self.rest.pop()
            branches.append(self._sequence(depth))
        return _choice([node for node, _ in branches]), any(loops for _, loops in branches)

    def _sequence(self, depth: int) -> tuple[Node, bool]:
        parts: list[tuple[Node, bool]] = []
        while self.rest and self.rest[-1][0] not in ("bar", "close"):
            edge = self.rest[-1][0] == "edge"
            part = self._part(depth)
            if not edge and self.rest and self.rest[-1][0] == "loop":
                part = self._looped(part)
            parts.append(part)
        return _sequence([node for node, _ in parts]), any(loops for _, loops in parts)

    def _part(self, depth: int) -> tuple[Node, bool]:
        kind, text = self.rest.pop()
        if kind == "atom":
            return _atom(_characters(text)), False
        if kind == "edge":
            return _edge(text), False
        if kind == "open":
            inner = self.choice(depth + 1)
            if not self.rest or self.rest.pop()[0] != "close":
                raise UnsupportedPatternError("the pattern leaves a group open")
            return inner
        raise UnsupportedPatternError("the pattern repeats nothing, or repeats a repetition")

    def _looped(self, part: tuple[Node, bool]) -> tuple[Node, bool]:
        node, loops = part
        low, high = _bounds(self.rest.pop()[1])
        if loops and high > 1:
            raise UnsupportedPatternError("the pattern repeats a group that contains a repetition")
        return _repeat(node, low, high), high > 1


def _bounds(loop: str) -> tuple[int, int]:
    if loop in ("*", "+", "?"):
        return (1 if loop == "+" else 0), (1 if loop == "?" else MAX_PATTERN)
    low, comma, high = loop[1:-1].partition(",")
    least = int(low)
    most = int(high) if high else (MAX_PATTERN if comma else least)
    if most < least:
        raise UnsupportedPatternError("the pattern repeats something at least more often than at most")
    return least, most


@lru_cache(maxsize=256)
def _characters(atom: str) -> frozenset[str]:
    """Which ASCII characters an atom accepts: module names have no others."""
    try:
        tester = re.compile(atom, re.ASCII)
    except re.error:
        raise UnsupportedPatternError("the pattern has a character class that cannot be read") from None
    return frozenset(character for character in map(chr, range(128)) if tester.fullmatch(character))


def _atom(accepted: frozenset[str]) -> Node:
    return lambda text, starts: frozenset(at + 1 for at in starts if at < len(text) and text[at] in accepted)


def _edge(edge: str) -> Node:
    tester = re.compile(edge, re.ASCII)
    return lambda text, starts: frozenset(at for at in starts if tester.match(text, at) and (edge != "^" or at == 0))


def _sequence(nodes: list[Node]) -> Node:
    def run(text: str, starts: Positions) -> Positions:
        for node in nodes:
            starts = node(text, starts)
        return starts

    return run


def _choice(nodes: list[Node]) -> Node:
    if len(nodes) == 1:
        return nodes[0]
    return lambda text, starts: frozenset().union(*(node(text, starts) for node in nodes))


def _repeat(node: Node, low: int, high: int) -> Node:
    def run(text: str, starts: Positions) -> Positions:
        for _ in range(low):
            following = node(text, starts)
            if following == starts:
                break
            starts = following
        reached = fresh = starts
        for _ in range(high - low):
            fresh = node(text, fresh) - reached
            if not fresh:
                break
            reached |= fresh
        return reached

    return run
