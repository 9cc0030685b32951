"""How far a batch is, shown on stderr: a live bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

_LINE_EVERY_S: Final = 5.0


class Meter:
    """A context manager; `show` it the batch as often as there is news."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True, highlight=False)
        self._bar = _bar(console) if console.is_terminal else None
        self._task: TaskID | None = None
        self._said = ""
        self._said_at_s = -_LINE_EVERY_S

    def show(self, batch: dict[str, Any], swaps: float | None) -> None:
        """The batch as the API shows it, and the swaps that its results tell of."""
        counts = batch["request_counts"]
        ended, total = counts["completed"] + counts["failed"], counts["total"]
        told = line(batch, swaps)
        if self._bar is None:
            self._say(told, is_end=ended == total)
            return
        if self._task is None:
            self._task = self._bar.add_task("", total=total)
        self._bar.update(self._task, completed=ended, total=total, description=told)

    def _say(self, told: str, *, is_end: bool) -> None:
        now_s = time.monotonic()
        if told != self._said and (is_end or now_s - self._said_at_s >= _LINE_EVERY_S):
            typer.echo(told, err=True)
            self._said, self._said_at_s = told, now_s

    def __enter__(self) -> Meter:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()


def line(batch: dict[str, Any], swaps: float | None) -> str:
    """Done, failed, rate, time left and swaps, in words."""
    counts, extras = batch["request_counts"], batch["lorry"]
    parts = [f"{counts['completed']} of {counts['total']} done", f"{counts['failed']} failed"]
    if extras["rate_jobs_s"]:
        parts.append(f"{extras['rate_jobs_s']:.1f}/s")
    if extras["eta_s"] is not None:
        parts.append(f"{_span(extras['eta_s'])} left")
    if swaps is not None:
        number = round(swaps)
        parts.append(f"{number} swap{'' if number == 1 else 's'}")
    return ", ".join(parts)


def _bar(console: Console) -> Progress:
    return Progress(
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.description}", markup=False),
        console=console,
        expand=True,
        refresh_per_second=4,
    )


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
