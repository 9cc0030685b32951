"""Synthetic work, the same for every arm of a comparison: which tenant asks what, in which order. Seeded and pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from random import Random

PATTERNS = ("uniform", "zipf", "bursty")
BURST = (4, 12)
WORDS = (
    *("order", "refund", "printer", "invoice", "customer", "account", "late", "broken", "parcel", "address"),
    *("screen", "battery", "delivery", "payment", "error", "update", "manager", "friday", "request", "replacement"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt for one adapter (numbered from 0; None is the bare base)."""

    adapter: int | None
    prompt: str
    max_tokens: int


def requests(
    count: int, adapters: int, pattern: str, seed: int, *, tokens: tuple[int, int] = (8, 40), words: int = 12
) -> list[Request]:
    """`count` requests in order of arrival. Prompts differ between seeds, so that no prefix is ever cached."""
    random = Random(f"{pattern}/{count}/{adapters}/{seed}")
    chosen = sequence(count, adapters, pattern, random)
    return [Request(adapter, prompt(random, words), random.randint(*tokens)) for adapter in chosen]


def few(wanted: list[Request]) -> list[Request]:
    """The first eighth, for an arm that runs one job at a time: its rate does not depend on how many follow."""
    return wanted[: len(wanted) // 8]


def prompt(random: Random, words: int) -> str:
    """A prompt that no other one equals."""
    return f"{random.randrange(10**6)} " + " ".join(random.choices(WORDS, k=words))


def sequence(count: int, adapters: int, pattern: str, random: Random) -> list[int]:
    """Which adapter each request is for: all alike, by Zipf's law with exponent 1.0, or in bursts of one adapter."""
    if pattern == "uniform":
        return [random.randrange(adapters) for _ in range(count)]
    if pattern == "zipf":
        weights = list(accumulate(1 / rank for rank in range(1, adapters + 1)))
        return random.choices(range(adapters), cum_weights=weights, k=count)
    if pattern == "bursty":
        chosen: list[int] = []
        while len(chosen) < count:
            chosen += [random.randrange(adapters)] * random.randint(*BURST)
        return chosen[:count]
    raise ValueError(f"unknown pattern {pattern!r}")
