"""An event loop in a daemon thread of its own: where an engine's coroutines run, called from any other thread.

The loop lives as long as the process, so that whoever works on it survives an engine's restart. It knows no engine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


class EngineLoop:
    """`loop` runs from construction on."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="engine-loop", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[object, object, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop and wait for it; on timeout it is cancelled and TimeoutError raised.

        From the loop's own thread this would wait for itself for ever: RuntimeError.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("EngineLoop.call() was used on the loop's own thread: await the coroutine there")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise
