"""Leadership of the one dispatcher: a session advisory lock held by the very connection that picks.

A lost connection is a lost role, by construction: without it nothing can be picked either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, text
from sqlalchemy.orm import Session

from registry.db import mapped_outages

_LOCK = 0x10AA72
IDLE_S = 4.0
"""Longest silence of a leader; the dispatcher speaks at least every second."""


LOCK_MS = 1000
"""Whoever holds a lock for longer holds up one chore until its next round, and not the picking."""


class Leader:
    """At most one of these leads per database. The others are hot spares that ask again."""

    def __init__(self, engine: Engine, idle_s: float = IDLE_S) -> None:
        self._engine = engine
        self._idle_ms = int(idle_s * 1000)
        self._connection: Connection | None = None

    @property
    def leads(self) -> bool:
        """Whether this process holds the role, as far as it knows."""
        return self._connection is not None

    def try_to_lead(self) -> bool:
        """Take the role if nobody has it. Raises Unavailable."""
        if self._connection is not None:
            return True
        with mapped_outages():
            connection = self._engine.connect()
            # A leader that is frozen, or whose machine is gone without a word, loses the role by the server's hand.
            connection.execute(text(f"SET idle_session_timeout = {self._idle_ms}"))
            connection.execute(text(f"SET idle_in_transaction_session_timeout = {self._idle_ms}"))
            connection.execute(text(f"SET lock_timeout = {LOCK_MS}"))
            if connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK}):
                connection.commit()
                self._connection = connection
                return True
            connection.close()
            return False

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A transaction on the leading connection; the loss of that connection is the loss of the role.

        Raises Unavailable.
        """
        connection = self._connection
        assert connection is not None, "only a leader picks"
        try:
            with mapped_outages(), Session(connection, expire_on_commit=False) as session, session.begin():
                yield session
        except Exception:
            if connection.invalidated or connection.closed:
                self.resign()
            raise

    def resign(self) -> None:
        """Close the connection, and with it the lock."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()
            connection.close()
