"""Whether a line's prompt can fit its model at all. The exact count of every line is the worker's, at the claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from registry.adapters import Resolved
from registry.errors import PromptTooLong
from registry.prompts import PromptFormat, check_counts
from registry.shapes import JobCreate

_CHARS_PER_TOKEN: Final = 8
"""Twice what ordinary text has: a prompt with more characters than this for each token of context is worth counting."""
_COUNTED_CHARS: Final = 4_000_000
"""Counting this much text takes some seconds; a batch that needs more is left to the workers."""


class Fits:
    """The checks of one batch. `format_of` gives a base's prompt format by the base's name."""

    def __init__(self, format_of: Callable[[str], PromptFormat]) -> None:
        self._format_of = format_of
        self._left = _COUNTED_CHARS

    def check(self, resolved: Resolved, request: JobCreate) -> None:
        """Raise PromptTooLong for a job that certainly does not fit; silent when that is not known yet."""
        limit, max_tokens = resolved.max_model_len, request.max_tokens or 1
        if max_tokens >= limit:
            raise PromptTooLong(
                f"max_tokens is {max_tokens} and leaves no room for a prompt in the model's {limit} tokens of context.",
                param="max_tokens",
            )
        if request.on_overflow != "error":
            return
        chars = _chars(request)
        if _CHARS_PER_TOKEN * limit < chars <= self._left:
            self._left -= chars
            check_counts(len(self._format_of(resolved.base_model).token_ids(request.body)), max_tokens, limit)


def _chars(request: JobCreate) -> int:
    if request.messages is not None:
        return sum(len(message.content) for message in request.messages)
    return len(request.prompt if request.prompt is not None else request.document or "")
