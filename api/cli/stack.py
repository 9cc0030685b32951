"""A whole one-machine stack in one object: ordered start with readiness, workers as deployments come, staged stop.

`lorry up` and `lorry demo` share it. It decides the order; `Crew` holds the processes, `processes` names them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from api.cli import probes
from api.cli.crew import Crew
from api.cli.logtail import LogTail
from api.cli.processes import (
    API,
    BROKER_STAGE,
    DATABASE_STAGE,
    DISPATCHER,
    FLOWER,
    GPU_WORKER,
    IO_WORKER,
    MIGRATE,
)
from registry.embedded import Server, passwords
from registry.embedded.ports import require_free
from registry.embedded.postgres import Postgres
from registry.embedded.valkey import Valkey
from registry.errors import LorryError
from registry.settings import Settings

READY_TIMEOUT_S = 120.0
"""Generous: on two busy cores the imports alone have taken twenty seconds."""
DEPLOYMENTS_POLL_S = 2.0


class Stack:
    """Use it from the main thread's event loop: `async with Stack(settings, say=print) as stack: ...`."""

    def __init__(self, settings: Settings, *, say: Callable[[str], None], show_logs: bool = False) -> None:
        """`say` gets one line per event; `show_logs` also follows the processes' own logs on the terminal."""
        self.settings = settings.model_copy(update={"data_dir": settings.data_dir.absolute()})
        host = probes.reachable(settings.host)
        self.api_url = f"http://{host}:{settings.api_port}"
        self.flower_url = f"http://{host}:{settings.flower_port}"
        self._say = say
        self._tail = LogTail() if show_logs else None
        about = {"api_url": self.api_url, "flower_url": self.flower_url}
        self.crew = Crew(self.settings, say=say, tail=self._tail, about=about)
        self._table = probes.WorkerTable(self.settings)
        self._background: list[asyncio.Task[None]] = []

    @property
    def flower_password(self) -> str:
        """The operator's, else a generated one that stays the same for this data directory."""
        given = self.settings.flower_password
        return given.get_secret_value() if given else passwords.ensure(self.settings.data_dir / "secrets" / "flower")

    async def start(self) -> None:
        """Returns when the API answers. Workers start their engines meanwhile: see `wait_for_workers`.

        Raises Conflict (data directory in use), ConfigurationError (port taken), Unavailable (with a log's last lines).
        """
        settings, crew = self.settings, self.crew
        crew.state.acquire()
        for folder in ("logs", "secrets"):
            (settings.data_dir / folder).mkdir(mode=0o700, exist_ok=True)
        servers = self._servers()
        self._check_ports([server for server, _ in servers])
        crew.hand_on(self.flower_password)
        if self._tail:
            self._background.append(asyncio.create_task(self._tail.run(), name="log tail"))
        await asyncio.gather(*(self._start_server(server, stage) for server, stage in servers))
        await crew.run(MIGRATE)
        serving = (
            crew.start(API, probes.http(settings.host, settings.api_port, "/readyz")),
            crew.start(DISPATCHER),
            crew.start(IO_WORKER),
            crew.start(FLOWER, probes.http(settings.host, settings.flower_port, "/healthcheck")),
        )
        self._background.append(asyncio.create_task(self._keep_following(), name="deployments"))
        await asyncio.gather(*(child.wait_ready(READY_TIMEOUT_S) for child in serving))

    async def wait_for_workers(self, timeout_s: float) -> None:
        """Until every deployment's worker serves. Raises Unavailable when one ended three times or is late."""
        await self._follow_deployments()
        deadline_s = time.monotonic() + timeout_s
        for child in self.crew.named(GPU_WORKER.name).values():
            await child.wait_ready(deadline_s - time.monotonic(), deaths=3)

    async def stop(self) -> None:
        """No new work, drain, then dispatcher and Flower, then broker, then database. Safe to call twice."""
        following = [task for task in self._background if task.get_name() == "deployments"]
        await _cancel(following)
        await self.crew.stop()
        await asyncio.to_thread(self._table.close)
        await _cancel(self._background)
        if self._tail:
            self._tail.show_new()
        self.crew.state.release()

    def stop_at_once(self) -> None:
        """No drain: a `stop` under way, or the next one, ends within seconds. What was settled is safe all the same."""
        self.crew.hurry()

    async def __aenter__(self) -> Stack:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    def _servers(self) -> list[tuple[Server, int]]:
        """The embedded servers that these settings ask for, with their place in the order of stopping."""
        settings = self.settings
        servers: list[tuple[Server, int]] = []
        if settings.broker_url is None:
            servers.append((Valkey(settings.data_dir, settings.valkey_port, settings.valkey_bin), BROKER_STAGE))
        if settings.database_url is None:
            servers.append((Postgres(settings.data_dir, settings.pg_port, settings.pg_bin), DATABASE_STAGE))
        return servers

    def _check_ports(self, servers: list[Server]) -> None:
        for server in servers:
            require_free(server.port, "LORRY_PG_PORT" if isinstance(server, Postgres) else "LORRY_VALKEY_PORT")
        require_free(self.settings.api_port, "LORRY_API_PORT", self.settings.host)
        require_free(self.settings.flower_port, "LORRY_FLOWER_PORT", self.settings.host)

    async def _start_server(self, server: Server, stage: int) -> None:
        # `prepare` blocks for half a second at the first start; in a thread its initdb would die with that thread.
        server.prepare()
        child = self.crew.start_launch(server.launch(), stage, probes.blocking(server.ready))
        await child.wait_ready(READY_TIMEOUT_S)

    async def _follow_deployments(self) -> None:
        """One worker for each deployment; none for one that is gone. Raises Unavailable."""
        devices = await asyncio.to_thread(self._table.devices)
        wanted = {f"{GPU_WORKER.name}-{deployment}": deployment for deployment in devices}
        present = self.crew.named(GPU_WORKER.name)
        for name in wanted.keys() - present.keys():
            deployment = wanted[name]
            ready = self._table.worker_ready(deployment)
            self.crew.start(GPU_WORKER, ready, name, deployment=deployment, device=devices[deployment])
        for name in present.keys() - wanted.keys():
            self._say(f"{name} stops: its deployment is gone")
            await self.crew.dismiss(name)

    async def _keep_following(self) -> None:
        while True:
            # A database that is away for a moment is looked after by its own keeper; here the next round will do.
            with suppress(LorryError):
                await self._follow_deployments()
            await asyncio.sleep(DEPLOYMENTS_POLL_S)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
