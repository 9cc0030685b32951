"""Whether the registry answers anybody at all, so that not every request has to find out by waiting.

A database that is gone refuses at once. One that is frozen, or whose machine went away without a word, says nothing for
ten seconds or for ever, and each request would keep a thread of the API until it speaks.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from sqlalchemy import Engine, event, text

from registry.db import Database
from registry.errors import Unavailable

EVERY_S: Final = 0.5
SILENT_S: Final = 2.0
"""Longer than any statement of a probe takes; answers to requests count too, so a busy API is not silence."""

_PROBE: Final = text("SELECT 1")


class Pulse:
    """Asks every `EVERY_S`, from `start` to `close`. A refusal is an answer."""

    def __init__(self, database: Database, heard_at: Engine) -> None:
        """`database`: a connection of its own. `heard_at`: the engine whose answered statements count as well."""
        self._database = database
        self._heard_s = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        event.listen(heard_at, "after_cursor_execute", self._hear)

    def start(self) -> None:
        """Begin to ask."""
        self._hear()
        self._thread.start()

    def check(self) -> None:
        """Raises Unavailable when a probe has had no answer for `SILENT_S`, nor anybody else. Not before `start`."""
        if self._thread.is_alive() and time.monotonic() - self._heard_s > SILENT_S + EVERY_S:
            raise Unavailable("The registry's database does not answer; try again in a few seconds.")

    def close(self) -> None:
        """Ask no more. Does not wait for a probe that has no answer."""
        self._closing.set()
        self._thread.join(EVERY_S)

    def _hear(self, *_: object) -> None:
        self._heard_s = time.monotonic()

    def _run(self) -> None:
        while not self._closing.wait(EVERY_S):
            if self._ask():
                self._hear()
        self._database.close()

    def _ask(self) -> bool:
        """Whether there was an answer, or a refusal in good time: a time-out is none."""
        asked_s = time.monotonic()
        try:
            with self._database.transaction() as session:
                session.execute(_PROBE)
        except Exception:  # noqa: BLE001 - whatever it is, the probes go on
            return time.monotonic() - asked_s < SILENT_S
        return True
