"""Whose copy goes: the one that is needed last."""

from __future__ import annotations

from workers.victims import HostCopy, victim


def copy(adapter: int, *, unused_s: float = 0, turn: int | None = None, place: int | None = None) -> HostCopy:
    return HostCopy(adapter, unused_s, turn, place)


def gone(*copies: HostCopy) -> int | None:
    chosen = victim(copies)
    return None if chosen is None else chosen.adapter


def test_nothing_can_go_where_nothing_is() -> None:
    assert gone() is None


def test_what_nobody_is_known_to_need_goes_first_the_longest_unused() -> None:
    assert gone(copy(1, unused_s=3), copy(2, unused_s=9), copy(3, unused_s=99, place=50)) == 2


def test_what_the_backlog_needs_goes_before_what_is_held() -> None:
    assert gone(copy(1, turn=10**9), copy(2, place=1)) == 2


def test_the_farthest_next_use_goes() -> None:
    assert gone(copy(1, place=3), copy(2, place=8), copy(3, place=5)) == 2
    assert gone(copy(1, turn=3), copy(2, turn=8), copy(3, turn=5)) == 2
