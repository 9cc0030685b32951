"""A worker's look at the backlog: which of the adapters it has will be needed again, and in what order.

One cheap query a second on a thread of its own; while the registry is away the last answer stands.
"""

from __future__ import annotations

import threading

from sqlalchemy.exc import SQLAlchemyError

from registry import backlog
from registry.db import Database
from registry.errors import Unavailable
from workers.planner import Planner

EVERY_S = 1.0


class Outlook:
    """Tells the planner until `close`."""

    def __init__(self, database: Database, deployment: str, planner: Planner) -> None:
        self._database = database
        self._deployment = deployment
        self._planner = planner
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outlook", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            adapters = self._planner.known_adapters
            if not adapters:
                continue
            try:
                with self._database.transaction() as session:
                    self._planner.foresee(backlog.next_uses(session, self._deployment, adapters))
            except (Unavailable, SQLAlchemyError):
                continue  # who beats and settles says that the registry is away
