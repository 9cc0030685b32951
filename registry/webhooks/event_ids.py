"""`evt_` and 26 characters: an event's id on the wire, the same on every attempt. Crockford's base 32 of a uuid."""

from __future__ import annotations

import re
import uuid
from typing import Final

from registry.errors import NotFound

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_FORM: Final = re.compile(r"evt_([0-7][0-9a-hjkmnp-tv-z]{25})")


def to_wire(value: uuid.UUID) -> str:
    """The wire id; later events sort later, as their uuids do."""
    return "evt_" + "".join(_ALPHABET[value.int >> shift & 31] for shift in range(125, -1, -5))


def from_wire(text: str) -> uuid.UUID:
    """The uuid of a wire id. Raises NotFound for anything malformed."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise NotFound("No such delivery: check the id.")
    number = 0
    for char in match[1]:
        number = number << 5 | _ALPHABET.index(char)
    return uuid.UUID(int=number)
