"""The arithmetic of comparing arms: paired ratios, their median, fairness, percentiles. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median


def turns(arms: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """(round, arm) with the arms interleaved, each round beginning with another one: drift hits all alike."""
    for number in range(rounds):
        for place in range(len(arms)):
            yield number, arms[(number + place) % len(arms)]


def paired(better: Sequence[float], than: Sequence[float]) -> list[float]:
    """Ratio of each round's two values. Raises ValueError unless the rounds match."""
    return [ours / theirs for ours, theirs in zip(better, than, strict=True)]


def median_ratio(rates: Mapping[str, Sequence[float]], arm: str, against: str) -> float:
    """Median of the paired ratios of two arms' rates: above 1 when `arm` is faster."""
    return median(paired(rates[arm], rates[against]))


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 when all got the same, 1/n when one got everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie, by nearest rank. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def wait_bound_s(adapters: int, slots: int, adapter_max_wait_s: float, longest_s: float, load_s: float) -> float:
    """B: what Lorry promises to the first job of each of so many waiting adapters."""
    return -(-adapters // slots) * (adapter_max_wait_s + longest_s + load_s)
