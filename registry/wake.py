"""Waking idle neighbours after a commit: NOTIFY, coalesced per process, never inside the submitting transaction.

Lost notices are harmless: the dispatcher polls, and a worker compares what it holds at every beat.
"""

from __future__ import annotations

import threading

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from registry.db import CONNECT_S, GONE_SILENT, Database
from registry.errors import Unavailable
from registry.logs import get_logger

QUEUED = "lorry_queued"
CANCELLED = "lorry_cancelled"
DRAINED = "lorry_drained"

_log = get_logger("wake")


class Waker:
    """One thread that sends at most one NOTIFY per channel for any number of calls that arrive while it works."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._due: set[str] = set()
        self._lock = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="waker", daemon=True)
        self._thread.start()

    def wake(self, channel: str) -> None:
        """Ask for a notice; returns at once."""
        with self._lock:
            self._due.add(channel)
            self._lock.notify()

    def close(self) -> None:
        """Send what is due, then stop."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        self._thread.join(timeout=3)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._due or self._closing)
                due, self._due = self._due, set()
                if not due and self._closing:
                    return
            self._send(due)

    def _send(self, channels: set[str]) -> None:
        try:
            with self._database.transaction() as session:
                for channel in channels:
                    session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": channel})
        except (Unavailable, SQLAlchemyError):
            _log.warning("a notice was lost; the poll will find the work")


def listen(url: str, *channels: str) -> psycopg.Connection[tuple[object, ...]]:
    """A connection of its own that hears these channels; use `connection.notifies(timeout=…)`."""
    address = url.replace("postgresql+psycopg://", "postgresql://", 1)
    connection = psycopg.connect(address, autocommit=True, connect_timeout=CONNECT_S, **GONE_SILENT)
    for channel in channels:
        connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
    return connection
