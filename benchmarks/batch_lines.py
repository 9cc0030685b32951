"""Lines of a batch, good and bad, as tenants send them: for the benchmark and for the tests of the same behaviour."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MODEL = "Tiny"
_ENGLISH = "The printer on the third floor jams whenever two-sided mode is on; see ticket 4711. "
_KOREAN = "삼층 프린터가 양면 인쇄를 켜면 자꾸 걸린다고 고객이 말합니다. "


@dataclass(frozen=True, slots=True)
class BadKind:
    """A way for a line to be bad, and the code it is refused with."""

    name: str
    code: str
    make: Callable[[str], bytes]
    """The line's bytes, for the custom_id it would have had."""


def document(number: int, size_bytes: int = 2000) -> str:
    """A text of about this size, every third one in Hangul."""
    sentence = _KOREAN if number % 3 == 0 else _ENGLISH
    text = f"#{number} " + sentence * (size_bytes // len(sentence.encode()) + 1)
    return text.encode()[:size_bytes].decode("utf-8", "ignore")


def good_line(custom_id: str, text: str) -> bytes:
    """A line of the kind that POST /v1/batches takes directly."""
    return json.dumps({"custom_id": custom_id, "model": MODEL, "document": text}, ensure_ascii=False).encode()


def mixed(lines: int, bad_share: float, seed: int, size_bytes: int = 2000) -> tuple[list[bytes], dict[int, BadKind]]:
    """Lines of which a share is bad, each kind in its turn; and which ones, by line number from 1."""
    rng = random.Random(seed)
    bad_numbers = sorted(rng.sample(range(2, lines + 1), round(lines * bad_share)))
    bad = {number: BAD_KINDS[place % len(BAD_KINDS)] for place, number in enumerate(bad_numbers)}
    made = [
        bad[number].make(f"line-{number}")
        if number in bad
        else good_line(f"line-{number}", document(number, size_bytes))
        for number in range(1, lines + 1)
    ]
    return made, bad


def openai_lines(lines: int, size_bytes: int = 2000) -> Iterator[bytes]:
    """Good lines of an uploaded file."""
    for number in range(1, lines + 1):
        body = {"model": MODEL, "messages": [{"role": "user", "content": document(number, size_bytes)}]}
        line = {"custom_id": f"line-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
        yield json.dumps(line, ensure_ascii=False).encode()


def _with(fields: str) -> Callable[[str], bytes]:
    return lambda custom_id: f'{{"custom_id": "{custom_id}", "model": "{MODEL}", {fields}}}'.encode()


def _named(custom_id_json: str) -> Callable[[str], bytes]:
    return lambda _: f'{{"custom_id": {custom_id_json}, "model": "{MODEL}", "document": "x"}}'.encode()


BAD_KINDS = (
    BadKind("broken", "invalid_json_line", _with('"document": "x')),
    BadKind("array", "invalid_json_line", lambda _: b'["custom_id"]'),
    BadKind("nan", "invalid_json_line", _with('"document": "x", "temperature": NaN')),
    BadKind("infinite", "invalid_json_line", _with('"document": "x", "temperature": 1e400')),
    BadKind("digits", "invalid_json_line", _with('"document": "x", "seed": ' + "9" * 5000)),
    BadKind("doubled key", "invalid_json_line", _with('"document": "x", "document": "y"')),
    BadKind("depth", "invalid_json_line", _with('"document": ' + "[" * 100_000)),
    BadKind("late mark", "invalid_json_line", lambda custom_id: b"\xef\xbb\xbf" + good_line(custom_id, "x")),
    BadKind("nul", "invalid_text", _with(r'"document": "a\u0000b"')),
    BadKind("raw nul", "invalid_json_line", _with('"document": "a\0b"')),
    BadKind("surrogate", "invalid_text", _with(r'"document": "a\ud800b"')),
    BadKind("latin-1", "invalid_text", lambda custom_id: good_line(custom_id, "Müller").decode().encode("latin-1")),
    BadKind("utf-16", "invalid_text", lambda custom_id: good_line(custom_id, "x").decode().encode("utf-16")),
    BadKind("bool", "invalid_value", _with('"document": "x", "max_tokens": true')),
    BadKind("unknown field", "invalid_value", _with('"document": "x", "tools": []')),
    BadKind("two inputs", "invalid_value", _with('"document": "x", "prompt": "y"')),
    BadKind("no model", "model_not_found", lambda custom_id: good_line(custom_id, "x").replace(b"Tiny", b"Nobody")),
    BadKind("no id", "missing_custom_id", lambda _: b'{"model": "Tiny", "document": "x"}'),
    BadKind("first id again", "duplicate_custom_id", _named('"line-1"')),
    BadKind("empty id", "invalid_value", _named('""')),
    BadKind("blank id", "invalid_value", _named('"  "')),
    BadKind("long id", "invalid_value", _named('"' + "i" * 513 + '"')),
    BadKind("nul in id", "invalid_text", _named(r'"a\u0000b"')),
    BadKind("surrogate in id", "invalid_text", _named(r'"\udfff"')),
    BadKind("long line", "line_too_long", _with('"document": "' + "x" * 2**20 + '"')),
)
