"""Shows the children's log files on the terminal, one prefix and colour per process.

The children write their files themselves: a stopped terminal never stops them, and a killed runner loses no line.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import typer

COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")
PAUSE_S = 0.2
_WIDTH = 18
_HIDDEN = {"event", "level", "timestamp", "logger"}


class LogTail:
    """Follows the files that were added."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[str, int]] = {}

    def add(self, name: str, file: Path) -> None:
        """Follow from the file's present end."""
        colour = COLOURS[len(self._files) % len(COLOURS)]
        prefix = typer.style(f"{name:<{_WIDTH}} | ", fg=colour)
        self._files[file] = (prefix, file.stat().st_size if file.exists() else 0)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.show_new()
            await asyncio.sleep(PAUSE_S)

    def show_new(self) -> None:
        """Print what came since the last call, whole lines only."""
        for file, (prefix, at) in list(self._files.items()):
            size = file.stat().st_size if file.exists() else 0
            if size == at:
                continue
            with file.open("rb") as log:
                # A smaller file is a new one: the old one was put aside for its size.
                log.seek(start := at if size > at else 0)
                whole, newline, _ = log.read().rpartition(b"\n")
            self._files[file] = (prefix, start + len(whole) + len(newline))
            for line in whole.decode("utf-8", "replace").splitlines():
                typer.echo(prefix + readable(line))


def readable(line: str) -> str:
    """Our JSON records as words; any other line as it is."""
    try:
        record = json.loads(line)
        event = str(record["event"])
    except (ValueError, KeyError, TypeError):
        return line
    fields = " ".join(f"{key}={value}" for key, value in record.items() if key not in _HIDDEN)
    level = str(record.get("level", "info"))
    return " ".join(part for part in (level if level != "info" else "", event, fields) if part)
