"""Eviction policies over traces: counted by hand where the answer is known, compared where it is not."""

from __future__ import annotations

import pytest

from benchmarks import replay
from benchmarks.replay import Trace, Use


def trace(adapters: list[int], slots: int, runs_for: int = 0) -> Trace:
    return Trace("by hand", slots, tuple(Use(adapter, runs_for) for adapter in adapters))


@pytest.mark.parametrize(("policy", "count"), [("optimum", 4), ("farthest", 4), ("lru", 5)])
def test_the_farthest_use_is_given_up_and_not_the_least_recent(policy: str, count: int) -> None:
    # At 3 the least recent is 1, which is used next; 2 is not needed until the end.
    assert replay.activations(trace([1, 2, 3, 1, 2], slots=2), policy) == count


def test_what_is_not_in_sight_counts_as_unused_and_the_least_recent_goes() -> None:
    uses = trace([1, 2, 3, 1, 2], slots=2)

    assert replay.activations(uses, "farthest", held=0) == replay.activations(uses, "lru")


def test_a_pinned_adapter_is_never_given_up() -> None:
    # 1 runs for two further uses: 3 must take the slot of 2, though 2 is needed sooner.
    uses = Trace("pins", 2, (Use(1, 2), Use(2, 0), Use(3, 0), Use(2, 0)))

    assert replay.activations(uses, "optimum") == 4


def test_adapters_that_fit_are_brought_in_once() -> None:
    assert replay.activations(trace([1, 2, 1, 2, 2, 1], slots=2), "lru") == 2


@pytest.mark.parametrize("named", replay.traces(400), ids=lambda named: named.name)
def test_on_the_named_traces_the_products_choice_is_between_the_optimum_and_lru(named: Trace) -> None:
    counts = {policy: replay.activations(named, policy) for policy in replay.POLICIES}

    assert counts["optimum"] <= counts["farthest"] <= counts["lru"]
    assert counts["farthest"] <= 1.15 * counts["optimum"]
