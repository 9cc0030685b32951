"""What a waiting job is told."""

from __future__ import annotations

import pytest

from registry.explanations import MAX_CHARS
from tests.workers.test_policy import RULES, head, slot
from workers import waits
from workers.policy import BASE, Room


def test_each_cause_has_its_words() -> None:
    slots = [slot(1, live=2, served_s=9), slot(2, live=1, served_s=0.5)]
    heads = [head(1, 1), head(2, 2), head(3, 3, 4.0), head(4, 4, 0.1)]
    assert waits.reasons(heads, slots, 3, RULES) == {
        1: waits.DRAINING, 2: waits.KEPT, 3: waits.NEXT_SLOT, 4: waits.NO_SLOT,
    }  # fmt: skip


def test_a_full_engine_and_a_full_cache_are_told_apart() -> None:
    assert waits.reasons([head(1, 1)], [slot(1, live=4)], 4, RULES) == {1: waits.FULL}
    no_room = Room(tokens=-1, prompt_tokens=9)
    assert waits.reasons([head(1, 1)], [slot(1, live=1)], 1, RULES, room=no_room) == {1: waits.NO_ROOM}


def test_a_swap_under_way_is_said() -> None:
    assert waits.reasons([head(3, 1)], [slot(1, live=1)], 1, RULES, loading=3) == {3: waits.LOADING}


def test_suspects_and_those_behind_them_are_told_why() -> None:
    heads = [head(1, 1, alone=True), head(BASE, 2)]
    assert waits.reasons(heads, [slot(1, live=1)], 1, RULES) == {1: waits.SUSPECT, BASE: waits.ALONE}
    assert waits.reasons(heads[1:], [slot(1)], 1, RULES, alone=True) == {BASE: waits.ALONE}


@pytest.mark.parametrize("words", [value for name, value in vars(waits).items() if name.isupper() and name != "BASE"])
def test_the_words_fit_their_column(words: object) -> None:
    assert not isinstance(words, str) or len(words) <= MAX_CHARS
