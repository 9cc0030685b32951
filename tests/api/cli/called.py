"""One call of the `lorry` command in this process."""

from __future__ import annotations

from dataclasses import dataclass

from typer.testing import CliRunner

from api.cli import app


@dataclass(frozen=True)
class Answer:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str


def call(*arguments: object, stdin: bytes | None = None) -> Answer:
    """Run one command. An error that is not shown as one line is a bug and fails the test with its own traceback."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, prog_name="lorry")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)
