"""One adapter on its way into host memory, read on a thread of its own so that no engine step waits for the disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class Staged:
    """Reads at once. Knows nothing of slots or caches."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read
        self._adapter: Any = None
        self._error: Exception | None = None
        self._took_ms = 0.0
        self._thread = threading.Thread(target=self._run, name="lorry-stage", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether `result` would answer at once."""
        return not self._thread.is_alive()

    def result(self) -> tuple[Any, float]:
        """The adapter and what reading it took in ms. Waits; raises what the reader raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._adapter, self._took_ms

    def _run(self) -> None:
        started = time.perf_counter()
        try:
            self._adapter = self._read()
        except Exception as error:  # noqa: BLE001 - it is raised again where the result is wanted
            self._error = error
        self._took_ms = (time.perf_counter() - started) * 1000
