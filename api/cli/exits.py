"""How a tenant's command ends: the exit statuses, and the errors that have one of their own.

docs/cli.md lists the statuses. An error without a status here ends a command with 1.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from registry.errors import LorryError


class Exit(IntEnum):
    """What the shell sees."""

    ALL_SUCCEEDED = 0
    SOME_FAILED = 1
    USAGE = 2
    REFUSED = 3
    CONNECTION_LOST = 4
    INTERRUPTED = 130


class CommandError(LorryError):
    """A tenant's command cannot go on."""

    status: ClassVar[Exit] = Exit.SOME_FAILED


class UnusableInput(CommandError):
    """What the command was given cannot be used as it is; nothing was sent."""

    status = Exit.USAGE


class Refused(CommandError):
    """The server answered with an error. `server_code` is the code it gave."""

    status = Exit.REFUSED

    def __init__(self, message: str, server_code: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.server_code = server_code
        self.retry_after_s = retry_after_s


class ConnectionLost(CommandError):
    """The server did not answer for longer than the command was willing to wait."""

    status = Exit.CONNECTION_LOST


class Interrupted(CommandError):
    """Ctrl-C. What was submitted goes on."""

    status = Exit.INTERRUPTED


def status_of(problem: Exception) -> int:
    """The exit status for an error that ends a command."""
    return int(problem.status) if isinstance(problem, CommandError) else 1
