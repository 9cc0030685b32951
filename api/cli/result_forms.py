"""The forms that results are written in: JSONL, each line as the server sent it, or a table for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from api.cli.exits import UnusableInput

COLUMNS: Final = (
    "line",
    "custom_id",
    "status",
    "text",
    "finish_reason",
    "error_code",
    "error_message",
    "model",
    "adapter_version",
    "input_tokens",
    "output_tokens",
    "total_ms",
    "id",
)


class JsonLines:
    """Byte for byte what the API gives."""

    head = b""

    def row(self, raw: bytes, fields: Mapping[str, Any]) -> bytes:
        """One line."""
        return raw + b"\n"


class Table:
    """A row a line. A CSV begins with a mark: without it spreadsheets take its Korean for something else."""

    def __init__(self, delimiter: str, mark: bytes) -> None:
        self._delimiter = delimiter
        self.head = mark + self._written(COLUMNS)

    def row(self, raw: bytes, fields: Mapping[str, Any]) -> bytes:
        """One row; what a line does not have is an empty cell."""
        parts = {name: fields.get(name) or {} for name in ("output", "error", "usage", "timing")}
        nested = {
            "text": parts["output"].get("text"),
            "finish_reason": parts["output"].get("finish_reason"),
            "error_code": parts["error"].get("code"),
            "error_message": parts["error"].get("message"),
            "input_tokens": parts["usage"].get("input_tokens"),
            "output_tokens": parts["usage"].get("output_tokens"),
            "total_ms": parts["timing"].get("total_ms"),
        }
        return self._written([nested.get(name, fields.get(name)) for name in COLUMNS])

    def _written(self, cells: Any) -> bytes:
        text = io.StringIO()
        csv.writer(text, delimiter=self._delimiter).writerow(cells)
        return text.getvalue().encode()


Form = JsonLines | Table


def form_of(target: str) -> Form:
    """The form for a file's name, or for `-`. Raises UnusableInput."""
    suffix = ".jsonl" if target == "-" else Path(target).suffix.lower()
    match suffix:
        case ".jsonl" | ".ndjson":
            return JsonLines()
        case ".csv":
            return Table(",", b"\xef\xbb\xbf")
        case ".tsv":
            return Table("\t", b"")
    raise UnusableInput(f"--out {target}: end it in .jsonl, .csv or .tsv, which says the form of the results.")
