"""What swaps a job is told of: who left, and how long others' loads stopped it."""

from __future__ import annotations

import pytest

from workers.generation import AdapterRef, Swap
from workers.swaps import SwapHistory


def ref(adapter: int) -> AdapterRef:
    return AdapterRef(adapter, f"acme/a{adapter}@1#{'0' * 16}", "/files")


def swap(begun_s: float, ended_s: float) -> Swap:
    return Swap("cold", 1.0, 1.0, (), begun_s, ended_s)


def test_the_evicted_adapter_is_named_without_its_digest() -> None:
    history = SwapHistory()
    assert history.note(ref(1), swap(0, 1), None) is None
    assert history.note(ref(2), swap(1, 2), 1) == "acme/a1@1"


def test_an_adapter_nobody_brought_in_has_no_name() -> None:
    assert SwapHistory().note(ref(2), swap(1, 2), 1) is None


@pytest.mark.parametrize(
    ("from_s", "to_s", "stalled_ms"), [(0, 10, 3000), (2.5, 10, 2500), (0, 2.25, 250), (6, 10, 0), (0, 2, 0)]
)
def test_only_the_overlap_with_others_swaps_counts(from_s: float, to_s: float, stalled_ms: float) -> None:
    history = SwapHistory()
    history.note(ref(1), swap(2, 4), None)
    history.note(ref(2), swap(5, 6), None)
    history.note(ref(9), swap(0, 10), None)
    assert history.stalled_ms(9, from_s, to_s) == stalled_ms


def test_a_load_that_failed_may_have_stopped_the_others_too() -> None:
    history = SwapHistory()
    history.note_failure(ref(1), 2, 4)
    assert history.stalled_ms(9, 0, 10) == 2000
    assert history.stalled_ms(1, 0, 10) == 0
