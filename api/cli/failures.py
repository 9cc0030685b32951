"""What the terminal shows of an error: one line with its stable code, never a traceback for what can be expected."""

from __future__ import annotations

import errno

from api.cli.exits import CommandError, Refused
from registry.errors import AdapterRejected, LorryError


def one_line(problem: Exception) -> str | None:
    """The line for an error that an operator can mend; None for a bug, which should look like one."""
    if isinstance(problem, AdapterRejected):
        return f"{problem.message} {problem.repair} [{problem.code}: {problem.reason}]"
    if isinstance(problem, Refused):
        return f"{problem.message} [{problem.server_code}]"
    if isinstance(problem, CommandError):
        return problem.message
    if isinstance(problem, LorryError):
        return f"{problem.message} [{problem.code}]"
    if isinstance(problem, OSError) and problem.errno != errno.EPIPE and problem.filename:
        return f"{problem.filename}: {problem.strerror}. [os_error]"
    if isinstance(problem, ValueError):
        return _bad_settings(problem)
    return None


def _bad_settings(problem: ValueError) -> str | None:
    # Imported late: whoever got this far with such an error has loaded it already, `lorry --help` has not.
    from pydantic_core import ValidationError

    if not isinstance(problem, ValidationError) or problem.title != "Settings":
        return None
    wrong = [f"LORRY_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in problem.errors(include_input=False)]
    return f"The settings are wrong: {'; '.join(wrong)}. [configuration_error]"
