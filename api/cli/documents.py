"""From what a tenant has (JSONL, CSV, a folder of texts, a pipe) to the lines of a batch, one at a time.

A line of JSON goes out as it came in; only what it lacks is put in front. So the server sees doubled keys and broken
lines as they are and refuses them by their number.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from api.cli.encodings import named, not_decoded, open_text, read_text
from api.cli.exits import UnusableInput

FORMATS: Final = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".txt": "txt"}
_DELIMITERS: Final = {"csv": ",", "tsv": "\t"}
_LONGEST: Final = 1024 * 1024
"""Characters held of one line or cell; a line of a batch has no more bytes than that."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read the input, and what every line gets that does not say it itself."""

    model: str | None = None
    max_tokens: int | None = None
    column: str | None = None
    id_column: str | None = None
    kind: str | None = None
    encoding: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One line to send, or (`begins` False) the rest of one that is too long to hold. `place` is for messages."""

    raw: bytes
    place: str
    custom_id: str | None = None
    begins: bool = True


def items(source: str, reading: Reading) -> Iterator[Item]:
    """The lines of a file, of a folder's texts, or of stdin (`-`). Raises UnusableInput, OSError."""
    path = Path(source)
    if source != "-" and path.is_dir():
        yield from _folder(path, reading)
        return
    kind = reading.kind or ("jsonl" if source == "-" else FORMATS.get(path.suffix.lower()))
    if kind is None:
        raise UnusableInput(f"{source}: name its form with --format jsonl, csv, tsv or txt.")
    if kind == "txt":
        if source == "-":
            raise UnusableInput("--format txt needs a file or a folder: a document from a pipe has no name.")
        yield _document(path, path.parent, reading)
        return
    name = "stdin" if source == "-" else source
    with _binary(source) as binary:
        # A carriage return alone ends a row of an old table, but never a line of JSON.
        text = open_text(binary, name, reading.encoding, "\n" if kind == "jsonl" else "")
        reader: Callable[..., Iterator[Item]] = _json_lines if kind == "jsonl" else _rows
        try:
            yield from reader(text, name, kind, reading)
        except UnicodeDecodeError as error:
            raise not_decoded(error, name, reading.encoding) from None


def _binary(source: str) -> io.BufferedReader:
    if source != "-":
        return Path(source).open("rb")
    # A buffer of our own: `peek` is not there on every stand-in for stdin.
    stdin = sys.stdin.buffer
    return stdin if isinstance(stdin, io.BufferedReader) else io.BufferedReader(stdin)  # type: ignore[arg-type,type-var,unused-ignore]


def _folder(folder: Path, reading: Reading) -> Iterator[Item]:
    """Every .txt below, by name. Hidden files are none of ours: macOS leaves `._name.txt` in archives."""
    found = [
        file
        for file in folder.rglob("*")
        if file.suffix.lower() == ".txt" and file.is_file() and not file.name.startswith(".")
    ]
    if not found:
        raise UnusableInput(f"{folder}: there is no .txt file in it.")
    for _, file in sorted((named(file, folder, reading.encoding), file) for file in found):
        yield _document(file, folder, reading)


def _document(file: Path, folder: Path, reading: Reading) -> Item:
    if file.stat().st_size > _LONGEST:
        raise UnusableInput(f"{file} is larger than 1 MiB, the longest line of a batch: split it.")
    return _line(read_text(file, reading.encoding), named(file, folder, reading.encoding), str(file), reading)


def _rows(text: TextIO, name: str, kind: str, reading: Reading) -> Iterator[Item]:
    csv.field_size_limit(_LONGEST)
    rows = csv.reader(text, delimiter=_DELIMITERS[kind], strict=True)
    try:
        header = [cell.strip() for cell in next(rows, [])]
        document = _column(header, name, "--column", reading.column or "document")
        custom_id = _column(header, name, "--id-column", reading.id_column) if reading.id_column else None
        for number, row in enumerate((row for row in rows if row), 1):
            place = f"row {number} (line {rows.line_num})"
            if len(row) != len(header):
                raise UnusableInput(f"{name}: {place} has {len(row)} cells, the header {len(header)}.")
            yield _line(row[document], row[custom_id] if custom_id is not None else f"row-{number}", place, reading)
    except csv.Error as error:
        raise UnusableInput(f"{name}: line {rows.line_num} is not {kind.upper()}: {error}.") from None


def _column(header: list[str], name: str, option: str, wanted: str) -> int:
    if header.count(wanted) != 1:
        problem = "no column" if wanted not in header else "more than one column"
        raise UnusableInput(f"{name} has {problem} {wanted!r}; {option} takes one of: {', '.join(header) or '-'}.")
    return header.index(wanted)


def _json_lines(text: TextIO, name: str, kind: str, reading: Reading) -> Iterator[Item]:
    number, begins = 1, True
    while piece := text.readline(_LONGEST):
        ends = piece.endswith("\n")
        place = f"line {number}"
        if begins and (ends or len(piece) < _LONGEST):
            yield _completed(piece, number, place, reading)
        else:
            yield Item(piece.encode(), place, begins=begins)
        number, begins = number + ends, ends


def _completed(raw: str, number: int, place: str, reading: Reading) -> Item:
    """A line with what it lacks. Blank lines stay, so that the server counts lines as an editor does."""
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return Item(raw.encode(), place, begins=bool(raw.strip()))
    given = _given(reading) | {"custom_id": f"line-{number}"}
    lacking = {name: value for name, value in given.items() if name not in fields}
    if lacking:
        raw = json.dumps(lacking, ensure_ascii=False)[:-1] + (", " if fields else "") + raw.lstrip()[1:]
    custom_id = fields.get("custom_id", given["custom_id"])
    return Item(raw.encode(), place, custom_id if isinstance(custom_id, str) else None)


def _line(document: str, custom_id: str, place: str, reading: Reading) -> Item:
    if reading.model is None:
        raise UnusableInput("--model: name the adapter or base that the documents are for.")
    fields = {"custom_id": custom_id, "document": document} | _given(reading)
    return Item(json.dumps(fields, ensure_ascii=False).encode() + b"\n", place, custom_id)


def _given(reading: Reading) -> dict[str, Any]:
    given = {"model": reading.model, "max_tokens": reading.max_tokens}
    return {name: value for name, value in given.items() if value is not None}
