"""Sending a batch: the lines into an outbox, the outbox to the server, and what the server says of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import typer

from api.cli.client import Api, Body
from api.cli.documents import Item
from api.cli.exits import ConnectionLost, Exit, Interrupted, Refused, UnusableInput
from api.cli.outbox import Outbox
from registry.batches.intake import MAX_TASKS

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is said about the batch as a whole."""

    completion_window: str
    on_bad_line: str
    key: str

    def params(self, *, dry_run: bool) -> dict[str, str]:
        """As the server reads them."""
        wanted = {"completion_window": self.completion_window, "on_bad_line": self.on_bad_line}
        return wanted | ({"dry_run": "true"} if dry_run else {})


def submit(api: Api, lines: Iterable[Item], wishes: Wishes) -> str:
    """Make a batch; its id. Raises UnusableInput, Refused, ConnectionLost, Interrupted."""
    with Outbox() as outbox:
        _fill(outbox, lines, wishes)
        try:
            batch = api.post_lines("batches", Body(outbox.file), params=wishes.params(dry_run=False), key=wishes.key)
        except ConnectionLost as lost:
            raise ConnectionLost(f"{lost.message} {_again(wishes)}") from lost
        except KeyboardInterrupt:
            raise Interrupted(f"Stopped before the server's answer. {_again(wishes)}") from None
        size = f"{outbox.count} documents, {outbox.size_bytes / 1e6:.1f} MB"
        if batch["status"] == "failed":
            _list_errors(batch["errors"], outbox)
            raise Refused(f"Nothing runs: {batch['lorry']['bad_lines']} bad lines. {_hint(wishes)}", "batch_failed")
        typer.echo(f"{batch['id']}: {size}, {batch['lorry']['bad_lines']} bad lines skipped.", err=True)
        return str(batch["id"])


def rehearse(api: Api, lines: Iterable[Item], wishes: Wishes) -> Exit:
    """A dry run: print what would happen. SOME_FAILED if a line is bad."""
    with Outbox() as outbox:
        _fill(outbox, lines, wishes)
        found = api.post_lines("batches", Body(outbox.file), params=wishes.params(dry_run=True), key=wishes.key)
        if found["errors"]:
            _list_errors(found["errors"], outbox)
    typer.echo(json.dumps(found, ensure_ascii=False, indent=2))
    return Exit.ALL_SUCCEEDED if not found["bad_lines"] and found["would_run"] else Exit.SOME_FAILED


def _fill(outbox: Outbox, lines: Iterable[Item], wishes: Wishes) -> None:
    outbox.fill(lines, MAX_TASKS)
    if outbox.doubles:
        told = f"{outbox.double_total} ids come twice: {'; '.join(outbox.doubles)}."
        if wishes.on_bad_line != "skip":
            raise UnusableInput(f"{told} Make them different, or leave the later ones out with --on-bad-line skip.")
        typer.echo(told, err=True)


def _list_errors(errors: dict[str, Any], outbox: Outbox) -> None:
    """The first bad lines, each with its number and its id."""
    shown = errors["data"][:_SHOWN]
    known = outbox.ids_of({error["line"] for error in shown if error["line"]})
    for error in shown:
        where = f"line {error['line']}" if error["line"] else "all lines"
        named = f" ({known[error['line']]})" if error["line"] in known else ""
        typer.echo(f"{where}{named}: {error['message']} [{error['code']}]", err=True)


def _again(wishes: Wishes) -> str:
    return f"The batch may have been made. Repeat with --idempotency-key {wishes.key}: it is not made twice."


def _hint(wishes: Wishes) -> str:
    return "" if wishes.on_bad_line == "skip" else "--on-bad-line skip runs the others."
