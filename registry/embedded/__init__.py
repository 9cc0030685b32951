"""The two servers of a one-machine stack, PostgreSQL and Valkey, as plain child processes.

`EmbeddedServers` starts and stops both for tests and tools; `lorry up` supervises the same two `Launch`es itself.
Everything they keep is under one data directory; nothing listens beyond loopback; both ask for a password.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import TracebackType

from registry.embedded.launch import Launch
from registry.embedded.ports import require_free
from registry.embedded.postgres import Postgres
from registry.embedded.valkey import Valkey
from registry.errors import Unavailable
from registry.settings import Settings

START_TIMEOUT_S = 60.0

Server = Postgres | Valkey


class EmbeddedServers:
    """Both servers. Start it from the main thread: they end with the thread that started them."""

    def __init__(
        self,
        data_dir: Path,
        pg_port: int,
        valkey_port: int,
        *,
        pg_bin: Path | None = None,
        valkey_bin: Path | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.postgres = Postgres(self.data_dir, pg_port, pg_bin)
        self.valkey = Valkey(self.data_dir, valkey_port, valkey_bin)
        self._running: list[tuple[Launch, subprocess.Popen[bytes]]] = []

    def start(self) -> None:
        """Returns when both answer. Raises ConfigurationError (port taken, no binary) or Unavailable (with the log)."""
        require_free(self.postgres.port, "LORRY_PG_PORT")
        require_free(self.valkey.port, "LORRY_VALKEY_PORT")
        (self.data_dir / "logs").mkdir(parents=True, exist_ok=True)
        try:
            for server in (self.postgres, self.valkey):
                self._start_one(server)
        except BaseException:
            self.stop()
            raise

    def _start_one(self, server: Server) -> None:
        server.prepare()
        launch = server.launch()
        log = self.data_dir / "logs" / f"{server.name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                launch.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **launch.popen_options()
            )
        self._running.append((launch, process))
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not server.ready():
            if process.poll() is not None or time.monotonic() > deadline_s:
                words = "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])
                raise Unavailable(f"{server.name} did not start:\n{words}")
            time.sleep(0.02)

    def pids(self) -> dict[str, int]:
        """Process ids of the running servers by name."""
        return {launch.name: process.pid for launch, process in self._running}

    def stop(self) -> None:
        """Broker first, then the database; safe to call twice."""
        while self._running:
            launch, process = self._running.pop()
            process.send_signal(launch.stop_signal)
            try:
                process.wait(launch.grace_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def __enter__(self) -> EmbeddedServers:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def start_servers(settings: Settings) -> EmbeddedServers:
    """Both servers as the settings name them, started. The caller stops them."""
    servers = EmbeddedServers(
        settings.data_dir,
        settings.pg_port,
        settings.valkey_port,
        pg_bin=settings.pg_bin,
        valkey_bin=settings.valkey_bin,
    )
    servers.start()
    return servers
