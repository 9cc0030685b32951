"""One supervised child process: started, watched until ready, restarted with backoff, stopped in order.

Owns the process's life and its log file. It knows nothing of what the process is; `stack.py` does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from registry.embedded.launch import Launch
from registry.errors import Unavailable

FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0
HEALTHY_AFTER_S = 60.0
"""A child that ran this long starts its backoff anew."""
LARGEST_LOG_BYTES = 20_000_000
AT_ONCE_GRACE_S = 5.0

State = Literal["starting", "ready", "waiting", "stopping", "stopped"]


class Child:
    """Call everything from one event loop in the main thread (`Launch` says why)."""

    def __init__(
        self,
        launch: Launch,
        *,
        log: Path,
        environment: Mapping[str, str],
        folder: Path,
        ready: Callable[[int], Awaitable[bool]] | None,
        say: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        """`ready` is asked with the pid; without it, a process that was started counts as ready."""
        self.launch, self.log = launch, log
        self.state: State = "starting"
        self.deaths = 0
        self._environment, self._folder = environment, folder
        self._probe, self._say, self._changed = ready, say, changed
        self._process: asyncio.subprocess.Process | None = None
        self._became_ready, self._died, self._stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._in_a_hurry = False

    @property
    def pid(self) -> int | None:
        """Of the running process, None between two lives."""
        return self._process.pid if self._process and self._process.returncode is None else None

    def begin(self) -> None:
        """Start it and keep it running until `stop`."""
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.launch.name}")

    async def wait_ready(self, timeout_s: float, *, deaths: int = 1) -> None:
        """Raises Unavailable with the log's last lines when it ends `deaths` times, or is late."""
        deadline_s = time.monotonic() + timeout_s
        while not self._became_ready.is_set():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or self.deaths >= deaths or self._stopping.is_set():
                why = f"ended {self.deaths} times" if self.deaths else f"was not ready within {timeout_s:.0f} s"
                raise Unavailable(f"{self.launch.name} {why}. Its last lines ({self.log}):\n{self.last_lines()}")
            self._died.clear()
            await _first_of(self._became_ready.wait(), self._died.wait(), self._stopping.wait(), timeout_s=left_s)

    async def stop(self) -> None:
        """Ask the leader, wait its grace, then kill the group. Safe to call twice."""
        if self.state != "stopped":
            self._set("stopping")
        self._stopping.set()
        if self.pid is not None:
            self._signal(self.launch.death_signal if self._in_a_hurry else self.launch.stop_signal)
        if self._keeper is None:
            return
        grace_s = AT_ONCE_GRACE_S if self._in_a_hurry else self.launch.grace_s
        done, _ = await asyncio.wait([self._keeper], timeout=grace_s)
        if not done:
            if not self._in_a_hurry:
                self._say(f"{self.launch.name} did not stop within {grace_s:.0f} s; killed")
            self._kill_group()
            await self._keeper

    def hurry(self) -> None:
        """End it now; a `stop` that is waiting, or comes later, ends soon."""
        self._in_a_hurry = True
        self._stopping.set()
        if self.launch.death_signal == signal.SIGKILL:
            self._kill_group()
        else:
            self._signal(self.launch.death_signal)

    def last_lines(self, count: int = 12) -> str:
        """The end of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 8192))
                return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-count:])
        except FileNotFoundError:
            return ""

    async def _keep(self) -> None:
        backoff_s = FIRST_BACKOFF_S
        try:
            while not self._stopping.is_set():
                begun_at_s = time.monotonic()
                code = await self._live_once()
                if self._stopping.is_set():
                    return
                self.deaths += 1
                if time.monotonic() - begun_at_s > HEALTHY_AFTER_S:
                    backoff_s = FIRST_BACKOFF_S
                self._say(f"{self.launch.name} ended ({_ending(code)}); starting it again in {backoff_s:.1f} s")
                self._became_ready.clear()
                self._died.set()
                self._set("waiting")
                await _first_of(self._stopping.wait(), timeout_s=backoff_s)
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
        finally:
            self._set("stopped")

    async def _live_once(self) -> int:
        """From spawn to exit, with nothing of its process group left. Returns the exit code."""
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as output:
            self._process = process = await asyncio.create_subprocess_exec(
                *self.launch.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=self._environment,
                **self.launch.popen_options(),
            )
        self._set("starting")
        if self._stopping.is_set():
            self._signal(self.launch.death_signal)
        watch = asyncio.create_task(self._watch(process.pid))
        try:
            return await process.wait()
        finally:
            watch.cancel()
            # What the leader left behind (an engine process after kill -9 of its worker) goes with it.
            self._kill_group(process.pid)

    async def _watch(self, pid: int) -> None:
        begun_at_s = time.monotonic()
        while self._probe is not None:
            if await self._probe(pid):
                break
            await asyncio.sleep(0.05)
        if not self._stopping.is_set():
            word = "ready" if self._probe else "started"
            self._say(f"{self.launch.name} {word} after {time.monotonic() - begun_at_s:.1f} s (pid {pid})")
            self._set("ready")
            self._became_ready.set()

    def _set(self, state: State) -> None:
        self.state = state
        self._changed()

    def _signal(self, number: signal.Signals) -> None:
        if self._process and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _kill_group(self, leader: int | None = None) -> None:
        if group := leader or self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


async def _first_of(*waits: Awaitable[object], timeout_s: float) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
