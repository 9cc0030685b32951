"""Making a claimed job's prompt fit its model: as it is, with its document's middle cut out, or in parts.

Counts with the base's own tokenizer and template, as `registry.prompts` does; decides nothing about order and writes
nothing. Runs in the task's thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from registry import prompts
from registry.errors import PromptTooLong
from registry.long_documents import split, truncate
from registry.prompts import PromptFormat
from registry.transitions import Claimed, Division

DEFAULT_SHARE: Final = 4
"""A job that states no `max_tokens` keeps at most a quarter of the context for its output when its document is long."""
MIN_PART_TOKENS: Final = 16
MAX_PARTS: Final = 512
MAX_LEVELS: Final = 4
"""Texts of parts that are too long together are divided again, this many times in all."""
OVERLAP_SHARE: Final = 16
"""Neighbouring parts share at most a sixteenth of a part."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A prompt that fits, and what was done to its document for that."""

    token_ids: list[int]
    max_tokens: int
    overflow: dict[str, Any] | None = None


class Fitting:
    """Of one deployment."""

    def __init__(self, prompt_format: PromptFormat, max_model_len: int) -> None:
        self._format = prompt_format
        self._limit = max_model_len

    def fitted(self, body: dict[str, Any]) -> Fitted:
        """The prompt of a job. Raises PromptTooLong."""
        body = _with_reduced(body)
        token_ids, overflow = self._format.token_ids(body), None
        if body.get("on_overflow") == "truncate" and len(token_ids) > self._room(body):
            token_ids, overflow = self._truncated(body)
        wanted = body["sampling"]
        max_tokens = wanted["max_tokens"]
        if wanted.get("may_lower"):
            max_tokens = prompts.lowered(len(token_ids), max_tokens, self._limit)
        prompts.check_counts(len(token_ids), max_tokens, self._limit)
        return Fitted(token_ids, max_tokens, overflow)

    def division(self, claimed: Claimed) -> Division | None:
        """The parts of a job that is to be divided; None for one that runs as it is. Raises PromptTooLong."""
        if claimed.body is None or claimed.body.get("on_overflow") != "map_reduce":
            return None
        body = _with_reduced(claimed.body)
        if len(self._format.token_ids(body)) <= self._room(body):
            return None
        if claimed.overflow is not None and claimed.overflow["levels"] >= MAX_LEVELS:
            raise PromptTooLong(
                f"What the parts of the document gave is still too long after {MAX_LEVELS} rounds; lower max_tokens."
            )
        sampling = {key: value for key, value in body["sampling"].items() if key != "may_lower"}
        sampling["max_tokens"] = self._limit - self._room(body)
        return Division(claimed.job_id, claimed.fence, self._parts(body), sampling)

    def _room(self, body: dict[str, Any]) -> int:
        """Tokens that the prompt may have beside the output."""
        wanted = body["sampling"]
        reserved = wanted["max_tokens"]
        if wanted.get("may_lower"):
            reserved = min(reserved, max(1, self._limit // DEFAULT_SHARE))
        return int(self._limit - reserved)

    def _room_for_document(self, body: dict[str, Any], least: int) -> int:
        around = len(self._format.token_ids({**body, "document": ""}))
        room = self._room(body) - around
        if room < least:
            raise PromptTooLong(
                f"max_tokens and the base model's template leave {max(0, room)} tokens for the document; lower "
                "max_tokens.",
                param="max_tokens",
            )
        return room

    def _truncated(self, body: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
        document, room = body["document"], self._room(body)
        keep = self._room_for_document(body, MIN_PART_TOKENS)
        spans = self._format.spans(document)
        while keep > 0:
            cut = truncate(document, spans, keep)
            token_ids = self._format.token_ids({**body, "document": cut.text})
            if len(token_ids) <= room:
                return token_ids, {"strategy": "truncate", "dropped_tokens": cut.dropped_tokens}
            keep -= len(token_ids) - room  # the mark, and what the cut ends made of their tokens
        raise PromptTooLong("The document cannot be cut so that it fits; lower max_tokens.", param="max_tokens")

    def _parts(self, body: dict[str, Any]) -> list[str]:
        document, room = body["document"], self._room(body)
        size = self._room_for_document(body, MIN_PART_TOKENS)
        spans = self._format.spans(document)
        while size >= MIN_PART_TOKENS and len(spans) <= size * MAX_PARTS:
            ranges = split(document, spans, size, size // OVERLAP_SHARE)
            parts = [part for start, end in ranges if (part := document[start:end]).strip()] or [" "]
            longest = max(len(self._format.token_ids({**body, "document": part})) for part in parts)
            if longest <= room and len(parts) <= MAX_PARTS:
                return parts
            if longest <= room:
                break
            size -= longest - room  # a part by itself may have a token more than it had in the whole
        raise PromptTooLong(
            f"The document does not fit into {MAX_PARTS} parts; shorten it or lower max_tokens.", param="max_tokens"
        )


def _with_reduced(body: dict[str, Any]) -> dict[str, Any]:
    """The body with what its parts gave as its document, once they are done."""
    return {**body, "document": body["reduced"]} if "reduced" in body else body
