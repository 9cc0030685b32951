"""JSON from strangers: bounded by the caller, no duplicate keys, no NaN, no surprises from nesting.

Python's reader takes the last of two equal keys and accepts NaN; both have been used to show one file to a checker and
another to the consumer, so they are refused.
"""

from __future__ import annotations

import json
from typing import NoReturn


class BadJsonError(ValueError):
    """The bytes are not the JSON object we accept; the message is a short English clause."""


class DuplicateKeyError(BadJsonError):
    """An object names a key twice."""


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise DuplicateKeyError("a key appears twice")
    return result


def _no_constant(_name: str) -> NoReturn:
    raise BadJsonError("it contains NaN or Infinity")


def parse_object(raw: bytes) -> dict[str, object]:
    """The JSON object in `raw` (UTF-8). Raises BadJsonError."""
    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except BadJsonError:
        raise
    except UnicodeDecodeError:
        raise BadJsonError("it is not UTF-8") from None
    except RecursionError:
        raise BadJsonError("it is nested too deeply") from None
    except ValueError:
        # The reader's own message would quote the tenant's bytes.
        raise BadJsonError("it is not JSON") from None
    if not isinstance(value, dict):
        raise BadJsonError("it is not an object")
    return value
