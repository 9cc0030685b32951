"""Commands whose modules are imported when they are used, so that `lorry --help` answers at once.

A command's module may import SQLAlchemy at its top; this one and `api.cli` itself must not.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from api.cli import exits, failures
from registry.errors import LorryError


@dataclass(frozen=True, slots=True)
class Entry:
    """A command of the table: the module that holds it and its line in the help."""

    module: str
    help: str
    attribute: str = "app"


class LazyCommand(TyperCommand):
    """Stands for a command in help texts; as soon as arguments arrive the real one takes over."""

    def __init__(self, name: str, entry: Entry) -> None:
        super().__init__(name, help=entry.help)
        self._entry = entry

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which then also runs it."""
        return self._load().make_context(info_name, args, parent, **extra)

    def _load(self) -> Any:
        found = getattr(import_module(self._entry.module), self._entry.attribute)
        if isinstance(found, typer.Typer):
            return get_command(found)
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(self.name, help=self._entry.help)(found)
        return get_command(single)


class LazyGroup(TyperGroup):
    """A group over a table of entries. Prints expected errors as one line and exits with their status, mostly 1."""

    entries: ClassVar[dict[str, Entry]] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, entry in self.entries.items():
            self.add_command(LazyCommand(name, entry))

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except (LorryError, OSError, ValueError) as problem:
            line = failures.one_line(problem)
            if line is None:
                raise
            typer.secho(f"lorry: {line}", err=True, fg="red")
            raise typer.Exit(exits.status_of(problem)) from problem
