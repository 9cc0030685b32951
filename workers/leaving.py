"""How a worker's process ends: orderly within its grace, at once when asked twice, and never later than its supervisor
would bear. What runs inside is `gpu`'s; who wants it to end is a signal's or `watchdog`'s business.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from celery.worker import state as celery_state

from registry.logs import get_logger
from workers import family

ORDERLY = 0
START_ANEW = 75
"""EX_TEMPFAIL: whoever supervises this process should start it again."""
DRAIN_MARGIN_S = 3.0
"""What handing back may take beyond the grace, as long as the registry answers."""
LAST_RESORT_S = 15.0
"""Beyond the grace: whatever hangs, the process is gone in time."""
CELERY_S = 3.0
"""How long Celery may take to let go of the broker once all is closed; nothing depends on it."""

_log = get_logger("leaving")


def on_signals(first: Callable[[], None], again: Callable[[], None]) -> None:
    """What SIGTERM, SIGINT and SIGHUP do; call it in the main thread. A handler may interrupt anything, so that both
    may only set flags: a log line could wait for itself."""
    signals = iter([first])

    def handle(*_: Any) -> None:
        next(signals, again)()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handle)


class Leaver(Protocol):
    """What leaves."""

    def drain(self) -> None:
        """Hand back what has not begun, finish what ends in time, hand back the rest."""

    def let_go(self) -> None:
        """Give everything back at once, whatever it is doing."""

    def close(self) -> None:
        """Close the engine and say goodbye."""


class Leaving:
    """`begin` or a first signal drains; a second signal does not wait. The first reason decides the status."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._leaver: Leaver | None = None
        self._code = ORDERLY
        self._hurried = self._drained = False
        self._asked, self._go_on = threading.Event(), threading.Event()
        self._consumed = threading.Event()
        threading.Thread(target=self._run, name="leaving", daemon=True).start()

    def is_ready(self, leaver: Leaver) -> None:
        """The engine runs: from now on there is something to drain."""
        self._leaver = leaver

    def begin(self, code: int, why: str) -> None:
        """Drain, close, end with this status."""
        if not self._asked.is_set():
            self._code = code
            _log.warning("this worker leaves", why=why, code=code)
            self._asked.set()

    def finish(self) -> NoReturn:
        """Celery has ended: wait for the end of the process."""
        self._consumed.set()
        self.begin(START_ANEW, "Celery's consumer ended by itself")
        while True:
            signal.pause()

    def ask(self) -> None:
        """From a signal: leave in an orderly way."""
        self._asked.set()

    def hurry(self) -> None:
        """From a signal: wait for nothing any more."""
        self._hurried = True
        self._go_on.set()

    def _run(self) -> None:
        self._asked.wait()
        celery_state.should_stop = self._code
        last_resort = threading.Timer(self._grace_s + LAST_RESORT_S, self._exit)
        last_resort.daemon = True
        last_resort.start()
        if self._leaver is None:  # an engine that is being started cannot be asked for anything
            self._exit()
        else:
            self._leave(self._leaver)

    def _leave(self, leaver: Leaver) -> None:
        begun_s = time.monotonic()
        threading.Thread(target=self._drain, args=(leaver,), name="drain", daemon=True).start()
        self._go_on.wait(self._grace_s + DRAIN_MARGIN_S)
        if not self._drained:
            leaver.let_go()
        drained_s = time.monotonic()
        leaver.close()
        closed_s = time.monotonic()
        _log.info("left", drain_s=round(drained_s - begun_s, 2), close_s=round(closed_s - drained_s, 2))
        if not self._hurried:
            self._consumed.wait(CELERY_S)
        # All is written and closed; taking the interpreter and its libraries down in order would only cost seconds.
        sys.stdout.flush()
        os._exit(self._code)

    def _drain(self, leaver: Leaver) -> None:
        leaver.drain()
        self._drained = True
        self._go_on.set()

    def _exit(self) -> None:
        """Without closing anything; nothing below this process stays behind."""
        family.kill_descendants(os.getpid())
        os._exit(self._code)
