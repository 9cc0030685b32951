"""The arithmetic of comparing arms."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import ratios


def test_every_arm_runs_once_a_round_and_begins_a_round_as_often_as_the_others() -> None:
    arms = ("a", "b", "c")

    order = list(ratios.turns(arms, 6))

    assert Counter(order) == {(number, arm): 1 for number in range(6) for arm in arms}
    assert Counter(order[place * 3][1] for place in range(6)) == {"a": 2, "b": 2, "c": 2}


def test_a_ratio_is_the_median_over_pairs_so_that_one_disturbed_round_does_not_count() -> None:
    rates = {"lorry": [10.0, 20.0, 1.0], "script": [10.0, 10.0, 10.0]}

    assert ratios.median_ratio(rates, "lorry", "script") == 1.0


def test_arms_of_unequal_length_have_no_pairs() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios.paired([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("shares", "index"), [([5, 5, 5, 5], 1.0), ([8, 0, 0, 0], 0.25), ([0, 0], 1.0)])
def test_jain_is_1_for_equal_shares_and_1_over_n_when_one_gets_all(shares: list[float], index: float) -> None:
    assert ratios.jain(shares) == pytest.approx(index)


@pytest.mark.parametrize(("share", "value"), [(0.95, 19), (1.0, 20), (0.5, 10), (0.01, 1)])
def test_a_percentile_is_a_measured_value_by_nearest_rank(share: float, value: float) -> None:
    assert ratios.percentile([float(n) for n in range(20, 0, -1)], share) == value


def test_a_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        ratios.percentile([], 0.5)


def test_the_bound_counts_rounds_of_slots_rounded_up() -> None:
    assert ratios.wait_bound_s(5, 2, 5.0, 3.0, 0.5) == 3 * 8.5
