"""PostgreSQL and Valkey that a test may kill, freeze, stop and start again on the same port and data."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from registry.embedded.postgres import Postgres
from registry.embedded.valkey import Valkey

START_S = 60.0


class Server:
    """One server process. Start it from the main thread: it ends with the thread that started it."""

    def __init__(self, kind: Postgres | Valkey) -> None:
        self._kind = kind
        self._process: subprocess.Popen[bytes] | None = None
        self.log = kind.data_dir / "logs" / f"{kind.name}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers. A server that was killed may need a second try: its children linger."""
        self._kind.prepare()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + START_S
        while not self._kind.ready():
            assert time.monotonic() < deadline, f"{self._kind.name} did not start; see {self.log}"
            if self._process is None or self._process.poll() is not None:
                time.sleep(0.1)
                self._spawn()
            time.sleep(0.02)

    def _spawn(self) -> None:
        launch = self._kind.launch()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                launch.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **launch.popen_options()
            )

    def _family(self) -> list[psutil.Process]:
        """The server and its children; PostgreSQL's are group leaders of their own."""
        assert self._process is not None
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def kill(self) -> None:
        """SIGKILL to all of it at once: what is not on disk is gone."""
        family = self._family()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)
        if self._process is not None:
            self._process.wait(10)

    def freeze(self) -> None:
        """It keeps its connections and answers nothing."""
        for process in self._family():
            process.suspend()

    def thaw(self) -> None:
        for process in self._family():
            process.resume()

    def stop(self) -> None:
        """An orderly end; a kill when it takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self.thaw()
        self._process.send_signal(self._kind.launch().stop_signal)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def stop_immediately(self) -> None:
        """PostgreSQL's `-m immediate`: children are dropped, recovery follows at the next start."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(20)

    def forget(self) -> None:
        """Take the broker's file away while it is down: it comes back empty, as after `shutdown nosave`."""
        shutil.rmtree(self._kind.data_dir / "valkey" / "appendonlydir", ignore_errors=True)


def kept_by_broker(data_dir: Path) -> list[Path]:
    """Every file in which the broker keeps messages."""
    return [file for file in (data_dir / "valkey").rglob("*") if file.is_file() and file.suffix != ".conf"]
