"""What is wrong with the lines of a batch: which line, a stable code, and what to do. Never the line's own text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from registry.errors import InvalidJson, InvalidJsonLine, LorryError

LISTED: Final = 100
"""As many errors as a failed batch lists; the others are counted."""

_OF_LINES: Final = {InvalidJson.code: InvalidJsonLine.code}


@dataclass(frozen=True, slots=True)
class Refusal:
    """One line that cannot run, or (`line` None) the batch as a whole. `custom_id` only if the line has a good one."""

    line: int | None
    code: str
    message: str
    param: str | None = None
    custom_id: str | None = None

    @classmethod
    def of(cls, error: LorryError, line: int, custom_id: str | None) -> Refusal:
        """What an error means for a line."""
        return cls(line, _OF_LINES.get(error.code, error.code), error.message, error.param, custom_id)

    def entry(self) -> dict[str, Any]:
        """As OpenAI lists it in `errors.data`."""
        return {"code": self.code, "line": self.line, "message": self.message, "param": self.param}


@dataclass(slots=True)
class Refusals:
    """The refusals of a batch: the first `kept` of them, and the count of all."""

    kept: int
    total: int = 0
    first: list[Refusal] = field(default_factory=list)

    def add(self, refusal: Refusal) -> None:
        """Count it, and keep it if there is room."""
        self.total += 1
        if len(self.first) < self.kept:
            self.first.append(refusal)

    def listed(self) -> list[dict[str, Any]]:
        """The first hundred, as a failed batch shows them."""
        return [refusal.entry() for refusal in sorted(self.first, key=lambda refusal: refusal.line or 0)[:LISTED]]
