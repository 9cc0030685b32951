"""docs/cli.md has every option of `lorry submit`, every command of a tenant and every exit status, and no other."""

from __future__ import annotations

from typing import Any

import typer

from api.cli import app, batches, webhooks
from api.cli.exits import Exit
from api.cli.lazy import LazyCommand
from tests.docs import pages

PAGE = pages.read("cli")


def test_the_table_of_options_is_the_commands() -> None:
    group: Any = typer.main.get_command(app)
    command: LazyCommand = group.commands["submit"]
    real = command.make_context("submit", [], resilient_parsing=True).command
    options = [name for parameter in real.params for name in parameter.opts if name.startswith("--")]

    assert [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("| `--")] == [
        name for name in options if name != "--help"
    ]


def test_every_command_of_a_tenant_is_shown() -> None:
    shown = " ".join(pages.code_blocks(PAGE, ""))
    for name, group in (("batches", batches.app), ("webhooks", webhooks.app)):
        for command in group.registered_commands:
            assert f"lorry {name} {command.name}" in shown


def test_exit_statuses_are_the_codes() -> None:
    assert [(row[0], row[1]) for row in pages.table(PAGE, "Exit status")] == [
        (str(int(status)), status.name.lower()) for status in Exit
    ]
