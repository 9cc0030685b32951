"""Printing for people and for programs: the same records as aligned columns or as JSON.

Results go to stdout, everything else (hints, progress, errors) to stderr, so that results can be piped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Record = Mapping[str, Any]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_PIPED_WIDTH = 400
"""Columns are never cut for a pipe: a script reads them whole."""


def records(rows: Sequence[Record], *, as_json: bool, empty: str) -> None:
    """Print rows with the same keys as a table; `empty` is the hint when there are none."""
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows)
    else:
        hint(empty)


def record(fields: Record, *, as_json: bool) -> None:
    """Print one record, a field a line; what is nested gets dotted names."""
    if as_json:
        print_json(fields)
        return
    flat = dict(_flat(fields))
    width = max(map(len, flat))
    for name, value in flat.items():
        typer.echo(f"{name:<{width}}  {cell(value)}")


def print_table(rows: Sequence[Record]) -> None:
    """Aligned columns, headed by the keys of the first row."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, value in rows[0].items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        # Text, not str: what looks like markup in a name is printed as it stands.
        table.add_row(*(Text(cell(value)) for value in row.values()))
    console().print(table)


def print_json(value: object) -> None:
    """Indented JSON, readable in every language."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))


def hint(line: str) -> None:
    """A line beside the result."""
    typer.echo(line, err=True)


def console() -> Console:
    """stdout, wide enough for any row when it is a pipe."""
    made = Console(highlight=False, markup=False)
    return made if made.is_terminal else Console(highlight=False, markup=False, width=_PIPED_WIDTH)


def cell(value: object) -> str:
    """One value for people: `-` for nothing, UTC seconds for times."""
    if value is None or (isinstance(value, str | list | tuple | Mapping) and not value):
        return "-"
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        case list() | tuple():
            return ", ".join(map(cell, value))
        case Mapping():
            return ", ".join(f"{key} {cell(item)}" for key, item in value.items())
    return str(value)


def _flat(fields: Record, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _plain(value: object) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)
