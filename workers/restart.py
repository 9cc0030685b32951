"""Starting an engine again that has died. Meanwhile its worker takes no jobs: others have engines that run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from registry.errors import LorryError
from registry.logs import get_logger

ENGINE_RESTARTS = 3
"""Starts in a row that may fail before the process gives up and lets its supervisor start a new one."""

_log = get_logger("restart")


class Startable(Protocol):
    """An engine, as far as this goes."""

    def start(self) -> None:
        """Start, or start again after `close`."""

    def close(self) -> None:
        """End whatever is left of it."""


class Restart:
    """`begin` may be called from any thread and returns at once."""

    def __init__(self, engine: Startable, resume: Callable[[], None], serve: Callable[[bool], None]) -> None:
        """`resume`: tells the planner that the engine runs. `serve`: whether the worker is to take jobs."""
        self._engine = engine
        self._resume = resume
        self._serve = serve
        self._lock = threading.Lock()
        self.under_way = threading.Event()
        """The engine is not to be asked anything."""
        self.failed = threading.Event()
        """It does not start any more."""

    def begin(self) -> None:
        """The engine has died."""
        self.under_way.set()
        threading.Thread(target=self._run, name="engine-restart", daemon=True).start()

    def _run(self) -> None:
        with self._lock:
            self._serve(False)
        for attempt in range(1, ENGINE_RESTARTS + 1):
            if self._starts(attempt):
                with self._lock:
                    if not self.under_way.is_set():  # else it has died again, and somebody else sees to it
                        self._serve(True)
                return
        self.failed.set()

    def _starts(self, attempt: int) -> bool:
        self.under_way.set()
        try:
            self._engine.close()
            self._engine.start()
            self.under_way.clear()
            self._resume()
        except Exception as error:  # noqa: BLE001 - an engine that dies while it starts says so in many ways
            words = error.message if isinstance(error, LorryError) else type(error).__name__
            _log.error("the engine did not start again", attempt=attempt, error=words)
            return False
        _log.info("the engine runs again", attempt=attempt)
        return True
