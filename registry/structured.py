"""Outputs that follow a JSON schema: what of JSON Schema is served, checked when the job is submitted.

The list is what the engine's grammar compiler (xgrammar, as vLLM 0.32 uses it) holds outputs to. It ignores some
keywords in silence; those are refused here by name, so that an output that was promised to fit does. What only the
compiler can tell (a range without a value, a pattern that is no pattern) fails its job at the engine as
`invalid_generation`, and nobody else's.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

MAX_BYTES: Final = 16 * 1024
MAX_DEPTH: Final = 8
"""Schemas within schemas. vLLM bounds the nesting of the JSON text; this bounds what a grammar unfolds to."""
MAX_PATTERN_CHARS: Final = 256
MAX_REPEATS: Final = 4096
"""The largest length or count a schema may name, and the product of the counts in one pattern."""
ANY_OBJECT: Final = '{"type":"object"}'

_ONE: Final = frozenset({"items", "additionalProperties"})
_LISTS: Final = frozenset({"anyOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "$defs", "definitions"})
_COUNTS: Final = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_NUMBERS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_REMARKS: Final = frozenset({"title", "description", "default", "examples", "$schema", "$id", "$comment"})
_OTHERS: Final = frozenset({"type", "enum", "const", "required", "pattern", "format", "$ref"})
SERVED: Final = _ONE | _LISTS | _NAMED | _COUNTS | _NUMBERS | _REMARKS | _OTHERS
_DEFINES: Final = frozenset({"$defs", "definitions"})
# What the compiler would pass over in silence: a limit without the type it limits, and whatever stands beside these.
_NEEDS: Final = {
    **{key: {"string"} for key in ("minLength", "maxLength", "pattern", "format")},
    **{key: {"array"} for key in ("items", "prefixItems", "minItems", "maxItems")},
    **{key: {"object"} for key in ("properties", "required", "additionalProperties")},
    **{key: {"number", "integer"} for key in sorted(_NUMBERS)},
}
_ALONE: Final = {"$ref": frozenset[str](), "anyOf": frozenset[str](), "enum": {"type"}, "const": {"type"}}
_TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_FORMATS: Final = frozenset({
    "email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "uri-reference",
    "uri-template", "json-pointer", "relative-json-pointer",
})  # fmt: skip
_LOOK_AROUND: Final = re.compile(r"\(\?(?!:)|\\[1-9bB]")
_COUNT: Final = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_PLAIN: Final = re.compile(r"[$A-Za-z][A-Za-z0-9]{0,39}")


def json_schema_text(schema: Any) -> str:
    """The schema as the engine takes it. Raises ValueError that says what is not served."""
    try:
        text = orjson.dumps(schema)
    except (TypeError, ValueError):
        raise ValueError("the schema is not JSON that can be stored") from None
    if len(text) > MAX_BYTES:
        raise ValueError(f"the schema has more than {MAX_BYTES} bytes")
    if b"\\u0000" in text:
        raise ValueError("the schema contains a NUL character, which cannot be stored")
    if not isinstance(schema, dict):
        raise ValueError("the schema has to be an object")
    _Check(schema).schema(schema, 1)
    return text.decode()


class _Check:
    """One schema's walk. A name that a caller made up is never repeated."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def schema(self, node: Any, depth: int) -> None:
        """Raise ValueError for a schema, or one within it, that is not served."""
        if depth > MAX_DEPTH:
            raise ValueError(f"the schema nests more than {MAX_DEPTH} schemas")
        if not isinstance(node, dict):
            raise ValueError("a schema within the schema has to be an object")
        for keyword, value in node.items():
            self._keyword(keyword, value, depth)
        self._together(node)

    @staticmethod
    def _together(node: dict[str, Any]) -> None:
        named = node.get("type")
        types = set(named) if isinstance(named, list) else {named}
        for keyword in node:
            if not types & _NEEDS.get(keyword, types):
                raise ValueError(f"{keyword} is served only beside its type: {' or '.join(sorted(_NEEDS[keyword]))}")
            if keyword in _ALONE and node.keys() - _ALONE[keyword] - _REMARKS - _DEFINES != {keyword}:
                raise ValueError(f"{keyword} together with other limits is not served; put those inside")
        if ("pattern" in node or "format" in node) and ("minLength" in node or "maxLength" in node):
            raise ValueError("pattern or format together with minLength or maxLength is not served")

    def _keyword(self, keyword: str, value: Any, depth: int) -> None:
        if keyword not in SERVED:
            named = f"the keyword {keyword}" if _PLAIN.fullmatch(keyword) else "a keyword"
            raise ValueError(f"{named} is not served; see the list in the documentation")
        if keyword in _ONE:
            if not (isinstance(value, bool) and keyword == "additionalProperties"):
                self.schema(value, depth + 1)
        elif keyword in _LISTS:
            for child in _nonempty(keyword, value):
                self.schema(child, depth + 1)
        elif keyword in _NAMED:
            if not isinstance(value, dict):
                raise ValueError(f"{keyword} has to be an object")
            for child in value.values():
                self.schema(child, depth + 1)
        elif keyword not in _REMARKS:
            self._plain(keyword, value)

    def _plain(self, keyword: str, value: Any) -> None:
        if keyword in _COUNTS:
            if type(value) is not int or not 0 <= value <= MAX_REPEATS:
                raise ValueError(f"{keyword} has to be an integer from 0 to {MAX_REPEATS}")
        elif keyword in _NUMBERS:
            if type(value) not in (int, float):
                raise ValueError(f"{keyword} has to be a number")
        elif keyword == "type":
            named = _nonempty(keyword, value if isinstance(value, list) else [value])
            if not all(isinstance(name, str) and name in _TYPES for name in named):
                raise ValueError(f"type has to be of {', '.join(sorted(_TYPES))}")
        elif keyword == "enum":
            _nonempty(keyword, value)
        elif keyword == "required":
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                raise ValueError("required has to be a list of names")
        elif keyword == "pattern":
            self._pattern(value)
        elif keyword == "format":
            if not isinstance(value, str) or value not in _FORMATS:
                raise ValueError(f"format has to be one of {', '.join(sorted(_FORMATS))}")
        elif keyword == "$ref":
            self._reference(value)

    @staticmethod
    def _pattern(value: Any) -> None:
        if not isinstance(value, str) or len(value) > MAX_PATTERN_CHARS:
            raise ValueError(f"pattern has to be text of at most {MAX_PATTERN_CHARS} characters")
        if _LOOK_AROUND.search(value):
            raise ValueError("pattern: look-around, back references, flags and word borders are not served")
        repeats = 1
        for low, high in _COUNT.findall(value):
            repeats *= max(1, int(high or low))
        if repeats > MAX_REPEATS:
            raise ValueError(f"pattern repeats more than {MAX_REPEATS} times")

    def _reference(self, value: Any) -> None:
        if value == "#":
            return
        if not isinstance(value, str) or not value.startswith("#/"):
            raise ValueError("$ref may only point into the schema itself, as #/$defs/name")
        found: Any = self._root
        for step in value[2:].split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise ValueError("$ref points to nothing in the schema")


def _nonempty(keyword: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{keyword} has to be a list with at least one entry")
    return value
