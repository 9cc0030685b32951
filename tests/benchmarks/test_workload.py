"""Synthetic work: the same for every arm, new in every round, in the pattern that was asked for."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest

from benchmarks import workload


@pytest.mark.parametrize("pattern", workload.PATTERNS)
def test_every_arm_of_a_round_gets_the_same_requests_and_every_round_new_prompts(pattern: str) -> None:
    first = workload.requests(50, 8, pattern, seed=1)

    assert first == workload.requests(50, 8, pattern, seed=1)
    assert not {one.prompt for one in first} & {one.prompt for one in workload.requests(50, 8, pattern, seed=2)}


def test_lengths_and_adapters_keep_to_their_bounds() -> None:
    made = workload.requests(300, 8, "uniform", 3, tokens=(8, 40))

    assert {one.adapter for one in made} == set(range(8))
    assert min(one.max_tokens for one in made) >= 8
    assert max(one.max_tokens for one in made) <= 40


def test_zipf_gives_the_first_adapter_about_twice_as_much_as_the_second() -> None:
    counts = Counter(one.adapter for one in workload.requests(5000, 16, "zipf", 0))

    assert 1.6 < counts[0] / counts[1] < 2.5


def test_bursts_are_runs_of_one_adapter() -> None:
    chosen = [one.adapter for one in workload.requests(1000, 16, "bursty", 0)]

    assert sum(1 for _ in groupby(chosen)) <= 1000 / workload.BURST[0]


def test_an_unknown_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="poisson"):
        workload.requests(1, 1, "poisson", 0)
