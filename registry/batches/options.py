"""What a caller says about a batch as a whole: OpenAI's fields, and ours."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from registry.shapes import ShortText, Strict, Text

ON_BAD_LINE: Final = "lorry.on_bad_line"
"""Our choice for bad lines as a metadata pair, for clients that send no field beyond OpenAI's."""
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,2})([hd])")
_LONGEST: Final = timedelta(days=7)

OnBadLine = Literal["fail", "skip"]


def window_of(text: str) -> timedelta:
    """`24h` or `7d` as a span. Raises ValueError outside 1h..7d."""
    match = _WINDOW.fullmatch(text)
    span = timedelta(**{"hours" if match[2] == "h" else "days": int(match[1])}) if match else timedelta()
    if not timedelta(hours=1) <= span <= _LONGEST:
        raise ValueError("a window is 24h, or any from 1h to 168h or 1d to 7d")
    return span


def _is_window(text: str) -> str:
    window_of(text)
    return text


class OutputExpiry(Strict):
    """When the output and error files go."""

    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(ge=3600, le=2_592_000)


class BatchOptions(Strict):
    """What both ways of making a batch have. `on_bad_line`: one bad line fails the batch, or is left out of it."""

    completion_window: Annotated[str, AfterValidator(_is_window)] = "24h"
    metadata: dict[Annotated[Text, Field(min_length=1, max_length=64)], Annotated[Text, Field(max_length=512)]] = Field(
        default_factory=dict, max_length=16
    )
    output_expires_after: OutputExpiry | None = None
    on_bad_line: OnBadLine | None = None
    webhook_url: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    dry_run: bool = False

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, fields: Any) -> Any:
        if isinstance(fields, dict):
            return {name: value for name, value in fields.items() if value is not None}
        return fields

    @model_validator(mode="after")
    def _known_choice(self) -> BatchOptions:
        if self.metadata.get(ON_BAD_LINE, "fail") not in ("fail", "skip"):
            raise ValueError(f'metadata["{ON_BAD_LINE}"] is "fail" or "skip"')
        return self

    @property
    def window(self) -> timedelta:
        """From the batch's making to its deadline."""
        return window_of(self.completion_window)

    @property
    def skip(self) -> bool:
        """Whether bad lines are left out."""
        return (self.on_bad_line or self.metadata.get(ON_BAD_LINE)) == "skip"


class BatchCreate(BatchOptions):
    """A batch of the lines of an uploaded file."""

    input_file_id: ShortText
    endpoint: Literal["/v1/chat/completions", "/v1/completions"]
