"""A Celery worker whose task does nothing, with the product's own Celery settings, threads pool and events.

`python -m benchmarks.arms.celery_noop QUEUE CONCURRENCY`. Asked for a count, it answers with the clock's
seconds at which so many tasks had been done since the last question.
"""

from __future__ import annotations

import sys
import threading
import time

from celery import Celery

from benchmarks.arms.lines import Lines
from registry.queues import make_celery, queue
from registry.settings import get_settings

TASK = "noop.run"


def application(queue_of: str) -> Celery:
    """The product's Celery application, on another queue."""
    app = make_celery(get_settings())
    app.conf.task_queues = [queue(queue_of)]
    return app


class Count:
    """How many tasks were done."""

    def __init__(self) -> None:
        self._done = 0
        self._changed = threading.Condition()
        self._target = sys.maxsize

    def add(self) -> None:
        """One more."""
        with self._changed:
            self._done += 1
            if self._done >= self._target:
                self._changed.notify()

    def reached(self, count: int) -> float:
        """Wait for so many; when they were done."""
        with self._changed:
            self._target = count
            self._changed.wait_for(lambda: self._done >= count)
            self._done, self._target = 0, sys.maxsize
        return time.time()


def main() -> None:
    """Run the worker until it is killed."""
    queue_of, concurrency = sys.argv[1:3]
    lines, count, app = Lines(), Count(), application(queue_of)

    @app.task(name=TASK, ignore_result=True)  # type: ignore[untyped-decorator]
    def run(_wire_id: str) -> None:
        count.add()

    def answer() -> None:
        for command in lines.commands():
            lines.say(count.reached(command["count"]))

    threading.Thread(target=answer, daemon=True).start()
    worker = app.Worker(
        hostname=f"{queue_of}@noop",
        pool="threads",
        concurrency=int(concurrency),
        queues=[queue_of],
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        task_events=True,
        quiet=True,
    )
    lines.say("ready")
    worker.start()


if __name__ == "__main__":
    main()
