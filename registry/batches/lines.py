"""One line of a batch: from its bytes to a job, or to the reason why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from registry import openai_body
from registry.errors import InvalidField, InvalidJsonLine, InvalidText, MissingCustomId, UrlMismatch
from registry.shapes import JobCreate
from registry.validation import checked, unknown_field

MAX_LINE_BYTES: Final = 1024 * 1024
MAX_ID_CHARS: Final = 512
CHAT: Final = "/v1/chat/completions"
COMPLETIONS: Final = "/v1/completions"
JOBS: Final = "/v1/jobs"
"""What a batch of our own lines has as its endpoint: each line is the body of a `POST /v1/jobs`."""

_OPENAI_FIELDS: Final = frozenset({"custom_id", "method", "url", "body"})
_BODIES: Final[dict[str, Callable[[dict[str, Any]], JobCreate]]] = {
    CHAT: openai_body.from_chat,
    COMPLETIONS: openai_body.from_completion,
}


def custom_id_of(fields: dict[str, Any]) -> str:
    """The line's own name, which its result will carry. Raises MissingCustomId, InvalidField, InvalidText."""
    found = fields.get("custom_id")
    if found is None:
        raise MissingCustomId("The line has no custom_id to tell its result from the others.", param="custom_id")
    if not isinstance(found, str) or not 1 <= len(found) <= MAX_ID_CHARS or found.isspace():
        raise InvalidField(f"custom_id is a text of 1 to {MAX_ID_CHARS} characters, not all blank.", param="custom_id")
    if "\0" in found or not _is_unicode(found):
        raise InvalidText("custom_id contains a NUL or half of a surrogate pair.", param="custom_id")
    return found


def job_of(fields: dict[str, Any], endpoint: str) -> JobCreate:
    """The job that a line asks for. Raises UrlMismatch, InvalidField, InvalidText."""
    if endpoint == JOBS:
        if fields.get("webhook_url") is not None:
            raise InvalidField("webhook_url: give it for the whole batch, not for a line.", param="webhook_url")
        return checked(JobCreate, fields)
    for name in fields:
        if name not in _OPENAI_FIELDS:
            raise unknown_field(name)
    if fields.get("method") != "POST":
        raise InvalidField('method: it has to be "POST".', param="method")
    if fields.get("url") != endpoint:
        raise UrlMismatch(f"The line's url is not the batch's endpoint {endpoint}.", param="url")
    body = fields.get("body")
    if not isinstance(body, dict):
        raise InvalidJsonLine("The line's body is not an object.", param="body")
    return _BODIES[endpoint](body)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
