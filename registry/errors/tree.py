"""The root of the tree."""

from __future__ import annotations

from typing import ClassVar


class LorryError(Exception):
    """Base of the tree. `param` names the offending field, where there is one."""

    code: ClassVar[str] = "internal_error"
    retry_after_s: int | None = None
    """When the same request may succeed, where that is known."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
