"""JSON from tenants, read strictly: for request bodies and for the lines of a batch.

Python's own reader takes the last of two equal keys, accepts NaN, recurses until the stack ends and quotes its input in
errors. Here depth and count are bounded before parsing, and no error repeats a byte of the text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

from registry.errors import InvalidJson, InvalidText

MAX_DEPTH: Final = 32
MAX_CONTAINERS: Final = 100_000
_MAX_DIGITS: Final = 64
# A string (closed or running to the end), or one bracket. Possessive, so that no input makes it go back: it is linear.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{]|[\]}]', re.DOTALL)


def parse_object(raw: bytes, what: str = "The body") -> dict[str, Any]:
    """The JSON object in `raw`. Raises InvalidText unless it is UTF-8, InvalidJson for everything else."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidText(f"{what} is not valid UTF-8 at byte {error.start}.") from None
    _check_nesting(raw, what)
    try:
        value = _DECODER.decode(text)
    except _RefusedError as error:
        raise InvalidJson(f"{what} {error}.") from None
    except (ValueError, RecursionError):
        # The reader's own message is dropped: it may quote the text.
        raise InvalidJson(f"{what} is not valid JSON.") from None
    if not isinstance(value, dict):
        raise InvalidJson(f"{what} is not a JSON object.")
    return value


class _RefusedError(Exception):
    """JSON for Python's reader, not for us; the message is the end of a sentence."""


def _check_nesting(raw: bytes, what: str) -> None:
    depth = containers = 0
    for token in _TOKEN.finditer(raw):
        if token[0] in (b"[", b"{"):
            depth += 1
            containers += 1
            if depth > MAX_DEPTH or containers > MAX_CONTAINERS:
                raise InvalidJson(f"{what} nests deeper than {MAX_DEPTH} levels or has over {MAX_CONTAINERS} objects.")
        elif token[0] in (b"]", b"}"):
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RefusedError("names a key twice in one object")
    return made


def _constant(_name: str) -> NoReturn:
    raise _RefusedError("contains NaN or Infinity, which JSON does not have")


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise _RefusedError("contains a number that is too long")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _RefusedError("contains a number that is too large")
    return value


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_constant, parse_int=_integer, parse_float=_number
)
