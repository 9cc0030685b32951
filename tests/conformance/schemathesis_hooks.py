"""What Schemathesis cannot guess: ids of things that exist, and bodies that mean something. It loads this file itself.

About half of the requests get them; the others keep what was made up. A body that means something often keeps one of
the fields that were made up, so that each is tried where nothing else is wrong.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import schemathesis

KNOWN: dict[str, Any] = json.loads(Path(os.environ["KNOWN"]).read_text("utf-8"))
"""`kept` and `doomed`: values of path parameters, the latter to be deleted; `bodies`: by path."""
_PLAIN = re.compile(r"[a-z][a-z_]+")


@schemathesis.hook
def map_path_parameters(context: schemathesis.HookContext, path_parameters: dict[str, Any] | None) -> Any:
    """Existing things in the address."""
    if not path_parameters or _is_left(path_parameters):
        return path_parameters
    assert context.operation is not None
    known = KNOWN["doomed" if context.operation.method.upper() == "DELETE" else "kept"]
    return {name: known.get(name, value) for name, value in path_parameters.items()}


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """A good body, two times in three with one odd field."""
    assert context.operation is not None
    good = KNOWN["bodies"].get(context.operation.path)
    if good is None or not isinstance(body, dict) or _is_left(body):
        return body
    number = len(repr(body)) // 2
    odd = sorted(name for name in body if _PLAIN.fullmatch(name))
    if not odd or number % 3 == 0:
        return good
    name = odd[number % len(odd)]
    return {**good, name: body[name]}


def _is_left(value: Any) -> bool:
    return len(repr(value)) % 2 == 0
