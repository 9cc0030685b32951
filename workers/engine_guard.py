"""The rules that both engines hold their caller to, whatever the planner does: plain bookkeeping, no vLLM.

A request may only start with its adapter in a slot, a prompt that fits and `max_tokens` that fit; a slot may only be
taken from an adapter that no request uses. Otherwise vLLM would load inside a step, where an error kills the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from registry.errors import EngineError, InvalidGeneration
from workers.generation import AdapterRef, EngineConfig, Generation

BASE = 0
"""Stands for the bare base model among adapter ids, which start at 1."""


class EngineGuard:
    """What is in slots and in use, as the host knows it. Used on the engine's loop only."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._slots: frozenset[int] = frozenset()
        self._leaving: frozenset[int] = frozenset()
        self._running: Counter[int] = Counter()

    @property
    def idle(self) -> bool:
        """Whether no request is running, with an adapter or without."""
        return not self._running

    @property
    def running_adapters(self) -> frozenset[int]:
        """Adapters of requests that are neither finished nor aborted."""
        return frozenset(self._running) - {BASE}

    def slots_are(self, int_ids: Iterable[int]) -> None:
        """Take over what the engine says is in its slots."""
        self._slots = frozenset(int_ids)

    def is_hot(self, int_id: int) -> bool:
        """Whether the adapter is in a slot and not about to leave it."""
        return int_id in self._slots and int_id not in self._leaving

    def check_generation(self, generation: Generation) -> None:
        """Raises InvalidGeneration, or EngineError if the adapter is in no slot."""
        prompt, wanted = len(generation.prompt_token_ids), generation.sampling.max_tokens
        if prompt == 0:
            raise InvalidGeneration("The prompt has no tokens: send at least one.", param="prompt")
        if wanted < 1:
            raise InvalidGeneration("`max_tokens` must be at least 1.", param="max_tokens")
        if prompt + wanted > self._config.max_model_len:
            raise InvalidGeneration(
                f"The prompt has {prompt} tokens and `max_tokens` is {wanted}: together more than the context of "
                f"{self._config.max_model_len} tokens. Shorten either.",
                param="prompt",
            )
        if generation.adapter is not None and not self.is_hot(generation.adapter.int_id):
            raise EngineError(f"Adapter {generation.adapter.int_id} is in no slot: swap it in before generating.")

    @contextmanager
    def swapping(self, adapter: AdapterRef, evict: int | None) -> Iterator[None]:
        """Hold for the length of a swap: no request may start with `evict` meanwhile.

        Raises EngineError if the swap would take a slot in use, or if there is none to take.
        """
        if evict is not None and self._running[evict]:
            raise EngineError(f"Adapter {evict} has {self._running[evict]} requests in the engine: wait for them.")
        leaving = frozenset() if evict is None else frozenset({evict})
        if len(self._slots - self._leaving - leaving) >= self._config.max_loras:
            raise EngineError(
                f"All {self._config.max_loras} slots are taken: name one that is idle as `evict` to bring in "
                f"adapter {adapter.int_id}."
            )
        self._leaving |= leaving
        try:
            yield
        finally:
            self._leaving -= leaving

    @contextmanager
    def running(self, adapter: AdapterRef | None) -> Iterator[None]:
        """Count a request as running for the length of the block."""
        int_id = BASE if adapter is None else adapter.int_id
        self._running[int_id] += 1
        try:
            yield
        finally:
            self._running[int_id] -= 1
            if not self._running[int_id]:
                del self._running[int_id]
