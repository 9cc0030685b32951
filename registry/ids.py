"""Identifiers: a time-ordered uuid in the row; `job_…`, `file-…` and the like on the wire and in Celery."""

from __future__ import annotations

import re
import secrets
import time
import uuid

from registry.errors import InvalidField, NotFound

SLUG = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
"""Tenant, adapter, base and deployment names: they become part of queue names, engine names and URLs."""

BASE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?")
"""Base models keep the capitals that the world knows them by: `Llama-3.1-8B`."""


def new_id() -> uuid.UUID:
    """A version 7 uuid: later ids sort later, so index inserts stay at the right edge (RFC 9562, 5.7)."""
    value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76
    value = value & ~(0x3 << 62) | 2 << 62
    return uuid.UUID(int=value)


def to_wire(kind: str, value: uuid.UUID) -> str:
    """`job_` + 32 hex digits; `file-` with a dash, as OpenAI writes it."""
    return f"{kind}{_joint(kind)}{value.hex}"


def from_wire(kind: str, text: str) -> uuid.UUID:
    """The uuid of a wire id. Raises NotFound for anything malformed: it names nothing."""
    match = re.fullmatch(rf"{kind}{_joint(kind)}([0-9a-f]{{32}})", text)
    if match is None:
        raise NotFound(f"No such {kind}: check the id.")
    return uuid.UUID(hex=match[1])


def _joint(kind: str) -> str:
    return "-" if kind == "file" else "_"


def check_slug(text: str, what: str) -> str:
    """A slug, or InvalidField that says what a slug is."""
    if not SLUG.fullmatch(text):
        raise InvalidField(
            f"A {what} is 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit.",
            param=what,
        )
    return text


def check_base_name(text: str) -> str:
    """A base or deployment name, or InvalidField."""
    if not BASE_NAME.fullmatch(text):
        raise InvalidField("A base model's name is 1 to 96 letters, digits, '.', '_' and '-'.", param="name")
    return text
