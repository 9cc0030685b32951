"""How long a tenant's command bears a server that does not answer, and how it waits meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from api.cli.exits import CommandError

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 10.0


class Patience:
    """`limit_s` counts from the first failure after a success. `say` gets a line when trouble begins and ends."""

    def __init__(self, limit_s: float, say: Callable[[str], None]) -> None:
        self._limit_s = limit_s
        self._say = say
        self._since_s: float | None = None
        self._pause_s = _FIRST_PAUSE_S

    def fine(self) -> None:
        """Something came through."""
        if self._since_s is not None:
            self._say("The server answers again.")
        self._since_s = None
        self._pause_s = _FIRST_PAUSE_S

    def wait(self, problem: CommandError) -> None:
        """Sleep before the next attempt, at least as long as the server asked for. Raises `problem` in the end."""
        now_s = time.monotonic()
        pause_s = max(self._pause_s, float(problem.retry_after_s or 0))
        if self._since_s is None:
            self._since_s = now_s
            if self._limit_s >= pause_s:
                self._say(f"{problem.message} Trying again for {self._limit_s:g} s.")
        if now_s + pause_s > self._since_s + self._limit_s:
            raise problem
        time.sleep(pause_s)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
