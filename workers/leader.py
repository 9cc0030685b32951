"""Leadership of the one dispatcher: a session advisory lock held by the very connection that picks.

A lost connection is a lost role, by construction: without it nothing can be picked either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from registry.db import mapped_outages

_LOCK = 0x10AA72


class Leader:
    """At most one of these leads per database. The others are hot spares that ask again."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
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
            if connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK}):
                connection.commit()
                self._connection = connection
                return True
            connection.close()
            return False

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """A transaction on the leading connection. Any failure of it gives the role up. Raises Unavailable."""
        connection = self._connection
        assert connection is not None, "only a leader picks"
        try:
            with mapped_outages(), Session(connection, expire_on_commit=False) as session, session.begin():
                yield session
        except SQLAlchemyError:
            self.resign()
            raise
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
