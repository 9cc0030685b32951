"""Whose slot or host copy is given up: the one that is needed last. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar


class Copy(Protocol):
    """An adapter in a slot or in host memory, and when it is needed next."""

    @property
    def next_turn(self) -> int | None:
        """Of its oldest held job."""

    @property
    def backlog_place(self) -> int | None:
        """In the backlog's order of next uses."""

    @property
    def unused_s(self) -> float:
        """Since it was last used."""


AnyCopy = TypeVar("AnyCopy", bound=Copy)


@dataclass(frozen=True, slots=True)
class HostCopy:
    """An adapter in host memory and in no slot."""

    adapter: int
    unused_s: float
    next_turn: int | None
    backlog_place: int | None


def victim(copies: Iterable[AnyCopy]) -> AnyCopy | None:
    """The copy that no job known needs, the longest unused; else the last in the backlog; else the last by turn."""
    return max(copies, key=_when_needed, default=None)


def _when_needed(copy: Copy) -> tuple[int, int, float]:
    if copy.next_turn is not None:
        return 0, copy.next_turn, copy.unused_s
    return (1, copy.backlog_place, copy.unused_s) if copy.backlog_place is not None else (2, 0, copy.unused_s)
