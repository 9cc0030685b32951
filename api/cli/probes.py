"""How the runner learns that a process is ready: an HTTP answer, a server's own check, a worker's row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property

from registry import deployments, presence
from registry.db import SYSTEM_ROLE, Database
from registry.errors import LorryError
from registry.settings import Settings

Probe = Callable[[int], Awaitable[bool]]
"""Asked again and again with the process's pid until it says True."""

ANSWER_TIMEOUT_S = 2.0


def reachable(host: str) -> str:
    """An address to connect to for a listener bound to `host`."""
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host  # noqa: S104


def http(host: str, port: int, path: str) -> Probe:
    """Ready when GET `path` answers 200."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    async def answers(_: int) -> bool:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(reachable(host), port)
                writer.write(request)
                status = await reader.readline()
                writer.close()
        except (OSError, TimeoutError):
            return False
        return status.split()[1:2] == [b"200"]

    return answers


def blocking(check: Callable[[], bool]) -> Probe:
    """Ready when a blocking check says so; it runs in a thread."""

    async def answers(_: int) -> bool:
        return await asyncio.to_thread(check)

    return answers


class WorkerTable:
    """The registry's rows of deployments and workers, read by the runner."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @cached_property
    def _database(self) -> Database:
        # Late: the embedded server's password exists only once it was started.
        return Database(self._settings.resolved_database_url, SYSTEM_ROLE, pool_size=2)

    def devices(self) -> dict[str, str]:
        """Deployment name -> device. Raises Unavailable."""
        with self._database.transaction() as session:
            return {name: deployments.get(session, name).device for name in deployments.names(session)}

    def is_ready(self, deployment: str, pid: int) -> bool:
        """Whether the worker with this pid says in its row that it takes jobs."""
        with self._database.transaction() as session:
            rows = presence.all_workers(session)
            return any((row.deployment, row.pid, row.state) == (deployment, pid, "ready") for row in rows)

    def worker_ready(self, deployment: str) -> Probe:
        """The probe of one deployment's worker."""

        async def says_ready(pid: int) -> bool:
            await asyncio.sleep(0.2)
            try:
                return await asyncio.to_thread(self.is_ready, deployment, pid)
            except LorryError:
                return False

        return says_ready

    def close(self) -> None:
        """Drop the connections, so that the database server can go."""
        self._database.close()
