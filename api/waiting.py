"""Clients that wait for jobs: one hub a process, whose single query asks for everybody at once.

A waiter is a future in a table: it holds no thread, no connection and no transaction. While there are any, the hub asks
every 50 ms which of their jobs have ended; a busy database is asked less often, so that waiting never is its main load.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from typing import Final

from fastapi import Request
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from registry.db import Database
from registry.errors import Unavailable
from registry.logs import get_logger

PAUSE_S: Final = 0.05
_SHARE: Final = 2
"""The hub rests at least this many times as long as its query took."""
_ENDED: Final = text("SELECT id FROM jobs WHERE id = ANY(:ids) AND finished_at IS NOT NULL")
_WAIT: Final = re.compile(r"(?:^|,)\s*wait\s*=\s*\"?(\d{1,9})\"?\s*(?:[,;]|$)", re.IGNORECASE)

_log = get_logger("waiting")


class Hub:
    """For the coroutines of one event loop. `database` is one of its own, under the role that may read ends."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiters: dict[uuid.UUID, set[asyncio.Future[bool]]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._is_closing = False

    async def ended(self, job_id: uuid.UUID, within_s: float) -> bool:
        """Wait until the job has ended; False when it has not within this time, or the process is stopping."""
        if self._is_closing:
            return False
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job_id, set()).add(waiter)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll())
        try:
            async with asyncio.timeout(within_s):
                return await waiter
        except TimeoutError:
            return False
        finally:
            self._forget(job_id, waiter)

    def waiting(self) -> int:
        """How many wait just now."""
        return sum(map(len, list(self._waiters.values())))

    def stop(self) -> None:
        """Let everybody go who waits, and nobody wait any more: the process is asked to end."""
        self._is_closing = True
        for job_id in list(self._waiters):
            self._tell(job_id, has_ended=False)

    def close(self) -> None:
        """Drop the connection."""
        self._database.close()

    async def _poll(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiters:
            begun_s = loop.time()
            try:
                ended = await asyncio.to_thread(self._look, list(self._waiters))
            except (Unavailable, SQLAlchemyError):
                _log.warning("waiting clients wait on: the database is away")
                ended = []
            for job_id in ended:
                self._tell(job_id, has_ended=True)
            await asyncio.sleep(max(PAUSE_S, _SHARE * (loop.time() - begun_s)))

    def _look(self, job_ids: list[uuid.UUID]) -> list[uuid.UUID]:
        with self._database.transaction() as session:
            return list(session.scalars(_ENDED, {"ids": job_ids}))

    def _tell(self, job_id: uuid.UUID, *, has_ended: bool) -> None:
        for waiter in self._waiters.get(job_id, ()):
            if not waiter.done():
                waiter.set_result(has_ended)

    def _forget(self, job_id: uuid.UUID, waiter: asyncio.Future[bool]) -> None:
        waiters = self._waiters[job_id]
        waiters.discard(waiter)
        if not waiters:
            del self._waiters[job_id]


def preferred_wait_s(request: Request, longest_s: int) -> int:
    """The seconds of `Prefer: wait=N` (RFC 7240), at most `longest_s`; 0 without a preference that can be read."""
    found = _WAIT.search(",".join(request.headers.getlist("prefer")))
    return min(int(found[1]), longest_s) if found else 0
