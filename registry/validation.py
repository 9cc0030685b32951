"""Pydantic's complaints in our words: which field, what is wrong, never what the caller wrote.

A name that the caller made up (a metadata key, an unknown field that is no plain word) counts as text and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from registry.errors import BadRequest, InvalidField, InvalidText

_PLACES: Final = ("body", "query", "path", "header", "cookie")
_PLAIN: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_INNER: Final = frozenset({"role", "content"})
_TEXT_KINDS: Final = frozenset({"invalid_text", "string_unicode"})
_SHOWN: Final = 5

Model = TypeVar("Model", bound=BaseModel)


def checked(model: type[Model], fields: dict[str, Any]) -> Model:
    """The fields as `model`. Raises InvalidField or InvalidText that names the first bad field."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise as_lorry_error(error.errors(include_input=False, include_url=False, include_context=False)) from None


def as_lorry_error(complaints: Sequence[Any]) -> BadRequest:
    """One error for a list of pydantic's: up to five sentences, the first one's field as `param`."""
    sentences = [_sentence(complaint) for complaint in complaints[:_SHOWN]]
    if len(complaints) > _SHOWN:
        sentences.append(f"({len(complaints) - _SHOWN} more.)")
    kind = InvalidText if complaints[0]["type"] in _TEXT_KINDS else InvalidField
    return kind(" ".join(sentences), param=_field(complaints[0]["loc"]))


def unknown_field(name: str) -> InvalidField:
    """The refusal of a field that does not exist here; a name that is no plain word is not repeated."""
    field = _field((name,))
    return InvalidField(_unknown(field), param=field)


def _sentence(complaint: Any) -> str:
    field = _field(complaint["loc"])
    if complaint["type"] == "extra_forbidden":
        return _unknown(field)
    if complaint["type"] == "missing":
        return f"{field}: the field is missing."
    if complaint["type"] == "string_unicode":
        return f"{field or 'A field'}: contains half of a surrogate pair, which is not valid text."
    said = str(complaint["msg"]).removeprefix("Value error, ").rstrip(".")
    return f"{field}: {said}." if field else f"{said[:1].upper()}{said[1:]}."


def _unknown(field: str | None) -> str:
    return f"{field}: there is no such field." if field else "A field has a name that does not exist here."


def _field(loc: Sequence[str | int]) -> str | None:
    """`messages[0].content` of a location; what comes below a caller's own key is left out."""
    parts = list(loc[1:] if loc and loc[0] in _PLACES else loc)
    if not parts or not isinstance(parts[0], str) or not _PLAIN.fullmatch(parts[0]):
        return None
    field = parts[0]
    for part in parts[1:]:
        if isinstance(part, int):
            field += f"[{part}]"
        elif part in _INNER:
            field += f".{part}"
        else:
            break
    return field
