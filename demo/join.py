"""Owns the choice of the stack that the demo runs on: the one that runs on this data directory, else one of its own.

A stack of its own is stopped at the end, a joined one is left as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Protocol

from api.cli.probes import reachable
from api.cli.runstate import RunState
from api.cli.stack import Stack
from demo.onboard import BASE
from registry import presence
from registry.db import SYSTEM_ROLE, Database
from registry.errors import ConfigurationError, Unavailable
from registry.settings import Settings

POLL_S = 0.5


class Running(Protocol):
    """What the demo needs of a stack."""

    api_url: str
    flower_url: str

    async def wait_for_workers(self, timeout_s: float) -> None:
        """Until jobs can run. Raises Unavailable."""


@dataclass
class Joined:
    """A stack that somebody else started."""

    settings: Settings
    api_url: str
    flower_url: str

    async def wait_for_workers(self, timeout_s: float) -> None:
        """Until the demo's deployment has a worker that takes jobs. Raises Unavailable."""
        deadline_s = time.monotonic() + timeout_s
        with closing(Database(self.settings.resolved_database_url, SYSTEM_ROLE, pool_size=1)) as database:
            while not await asyncio.to_thread(_has_worker, database):
                if time.monotonic() > deadline_s:
                    raise Unavailable(f"No worker for {BASE} within {timeout_s:.0f} s; see `lorry status` and its log.")
                await asyncio.sleep(POLL_S)


def find_running(settings: Settings) -> Joined | None:
    """The stack that runs on this data directory, if there is one."""
    about = RunState(settings.data_dir).running()
    return Joined(settings, about["api_url"], about["flower_url"]) if about else None


def require_running(settings: Settings) -> Joined:
    """That stack, or the servers that the settings name. Raises ConfigurationError when there is neither."""
    if found := find_running(settings):
        return found
    if settings.database_url is None:
        raise ConfigurationError(
            "No stack is running on this data directory: start one with `make up`, then try again."
        )
    host = reachable(settings.host)
    return Joined(settings, f"http://{host}:{settings.api_port}", f"http://{host}:{settings.flower_port}")


@asynccontextmanager
async def own_or_running(
    settings: Settings, say: Callable[[str], None], started: Callable[[Stack], None]
) -> AsyncIterator[Running]:
    """A stack to work with; `started` gets it before it starts if it is the demo's own."""
    if found := find_running(settings):
        say(f"joining the one that is running, {found.api_url}")
        yield found
        return
    own = Stack(settings, say=say)
    started(own)
    async with own:
        yield own
        say("stopping the stack")


def _has_worker(database: Database) -> bool:
    with database.transaction() as session:
        return any((row.deployment, row.state) == (BASE, "ready") for row in presence.all_workers(session))
