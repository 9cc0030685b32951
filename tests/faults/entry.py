"""A worker whose surroundings are altered before it starts: `python -m tests.faults.entry ALTERATION gpu …`.

For faults that lie inside Celery, kombu or the machine's clock, where the product has no place to put a failpoint.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

SKEW_S = 3600.0


def dies_after_pop() -> None:
    """Gone with a message in its hands: taken from the queue, not yet written to `unacked`."""
    from kombu.transport.redis import QoS

    QoS.append = lambda *_: os._exit(137)


def short_visibility() -> None:
    """Redis gives a message out again while its job still runs."""
    from registry.queues import celery_app

    celery_app.conf.broker_transport_options |= {"visibility_timeout": 1, "unacked_restore_interval": 1}


def restarts_at_the_gate() -> None:
    """Its engine, once dead, is being started until the file `GATE` is there."""
    from workers.engine_fake import FakeEngine

    start, gate, starts = FakeEngine.start, Path(os.environ["GATE"]), itertools.count()

    def wait_and_start(engine: FakeEngine) -> None:
        if next(starts):
            while not gate.exists():
                time.sleep(0.05)
        start(engine)

    mock.patch.object(FakeEngine, "start", wait_and_start).start()


def clock_ahead() -> None:
    """This process believes that it is an hour later."""
    _skew(SKEW_S)


def clock_behind() -> None:
    """This process believes that it is an hour earlier."""
    _skew(-SKEW_S)


def _skew(by_s: float) -> None:
    real: Callable[[], float] = time.time
    time.time = lambda: real() + by_s


ALTERATIONS: dict[str, Callable[[], Any]] = {
    alteration.__name__: alteration
    for alteration in (dies_after_pop, short_visibility, restarts_at_the_gate, clock_ahead, clock_behind)
}


if __name__ == "__main__":
    ALTERATIONS[sys.argv[1]]()
    from workers.main import main

    sys.exit(main(sys.argv[2:]))
