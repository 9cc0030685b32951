"""Owns what the demo shows on the terminal: steps with the time, live progress, sample summaries, where to look next.

Bars on a terminal, a plain line now and then in a log. Decides nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from demo.client import Submitted
from demo.report import Outcome, Report, tenant_table
from demo.tickets import TENANTS, form_ok, order_number_ok

PLAIN_LINE_EVERY_S = 10.0
_LOG_WIDTH = 110


class Screen:
    """Lines with the seconds since the start."""

    def __init__(self, console: Console | None = None) -> None:
        made = console or Console(highlight=False, markup=False)
        self.console = (
            made if made.is_terminal else Console(file=made.file, highlight=False, markup=False, width=_LOG_WIDTH)
        )
        self._begun_at_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun_at_s

    def step(self, title: str) -> None:
        """A new step begins."""
        self.console.print(Text(f"[{self.elapsed_s:6.1f} s] {title}", style="bold"))

    def say(self, line: str) -> None:
        """A detail of the step."""
        self.console.print(Text(f"           {line.removeprefix('demo: ')}"), soft_wrap=True)

    def blank(self) -> None:
        self.console.print()


class Live:
    """Progress of the submitted jobs, by tenant."""

    def __init__(self, screen: Screen, submitted: Sequence[Submitted]) -> None:
        self._screen = screen
        self._totals = Counter(item.tenant.id for item in submitted)
        self._shown = 0
        self._shown_at_s = time.monotonic()
        self._bars = Progress(
            TextColumn("           {task.description:<8}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=screen.console,
            disable=not screen.console.is_terminal,
        )
        self._tasks = {tenant: self._bars.add_task(tenant, total=total) for tenant, total in self._totals.items()}

    def __enter__(self) -> Live:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def show(self, done: Sequence[Outcome]) -> None:
        """All that has ended so far."""
        if done and not self._shown:
            self._screen.say(f"first job ended {self._screen.elapsed_s:.1f} s after the start of the command")
        counts = Counter(outcome.tenant.id for outcome in done)
        for tenant, task in self._tasks.items():
            self._bars.update(task, completed=counts[tenant])
        if not self._screen.console.is_terminal:
            self._plain_line(counts, len(done))
        self._shown = len(done)

    def _plain_line(self, counts: Counter[str], ended: int) -> None:
        due = time.monotonic() - self._shown_at_s > PLAIN_LINE_EVERY_S
        if due or (ended == self._totals.total() and ended != self._shown):
            self._shown_at_s = time.monotonic()
            each = ", ".join(f"{tenant} {counts[tenant]}/{total}" for tenant, total in self._totals.items())
            self._screen.say(f"{ended} of {self._totals.total()} ended: {each}")


def show_samples(screen: Screen, outcomes: Sequence[Outcome], each: int = 1) -> None:
    """The first summaries of every tenant, below the ticket they are of."""
    for tenant in TENANTS:
        good = [o for o in outcomes if o.tenant.id == tenant.id and o.job["status"] == "succeeded"]
        for outcome in good[:each]:
            text = outcome.job["output"]["text"]
            checks = [name for name, ok in _verdicts(outcome, text).items() if not ok]
            screen.console.print(Text(f"{tenant.id} ({tenant.form})", style="bold cyan"))
            screen.console.print(Text(f"  ticket   {outcome.ticket.document}", style="dim"), soft_wrap=True)
            for number, line in enumerate(text.strip().splitlines()):
                screen.console.print(Text(f"  {'summary' if number == 0 else '':<8} {line}"), soft_wrap=True)
            if checks:
                screen.console.print(Text(f"  not as trained: {', '.join(checks)}", style="yellow"))


def show_result(screen: Screen, report: Report, outcomes: Sequence[Outcome], took_s: float) -> None:
    """The table, the totals, and what failed."""
    screen.blank()
    screen.console.print(tenant_table(report))
    jobs = report["jobs"]
    swaps = report["swaps"]
    colds = sum(swap["state"] == "cold" for swap in swaps)
    screen.say(
        f"{jobs['succeeded']} of {jobs['submitted']} jobs succeeded in {took_s:.1f} s "
        f"({jobs['succeeded'] / took_s:.1f} a second), {jobs['failed']} failed"
    )
    form, number = report["form_ok_ratio"], report["order_number_ok_ratio"]
    screen.say(f"{form:.1%} have their tenant's form, {number:.1%} the right order number")
    screen.say(f"{len(swaps)} swaps: {colds} cold (from disk), {len(swaps) - colds} warm (from host memory)")
    for code, count in Counter(_why(o) for o in outcomes if o.job["status"] != "succeeded").items():
        screen.console.print(Text(f"           {count} x {code}", style="red"))


def _why(outcome: Outcome) -> str:
    error = outcome.job.get("error") or {}
    return f"{outcome.job['status']} {error.get('code', '')}: {error.get('message', '')}".rstrip(": ")


def _verdicts(outcome: Outcome, text: str) -> dict[str, bool]:
    return {"form": form_ok(outcome.tenant, text), "order number": order_number_ok(outcome.ticket, text)}
