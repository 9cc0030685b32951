"""What a running stack tells other commands: `run/up.json` under the data directory, and the lock beside it.

`lorry status` and `lorry demo` read the file; only the runner that holds the lock writes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from registry.errors import Conflict

LEFTOVER_GRACE_S = 10.0


class RunState:
    """The lock and the file of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir.absolute() / "run"
        self.file = self._folder / "up.json"
        self._lock: int | None = None

    def acquire(self) -> None:
        """Take the data directory for this process; the kernel frees it however the process ends. Raises Conflict."""
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as held:
            os.close(descriptor)
            runner = self.read().get("runner", {}).get("pid", "unknown")
            raise Conflict(
                f"A stack is running on {self._folder.parent} already (pid {runner}). "
                "Stop it first, or choose another folder with LORRY_DATA_DIR."
            ) from held
        self._lock = descriptor
        self._end_leftovers()

    def release(self) -> None:
        """Give the data directory back; safe to call twice."""
        if self._lock is not None:
            self.file.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def write(self, content: dict[str, Any]) -> None:
        """Replace the file in one step: a reader never sees half of it. Ignored once the lock is given back."""
        if self._lock is None:
            return
        scratch = self.file.with_suffix(".new")
        scratch.write_text(json.dumps(content, indent=1), "utf-8")
        scratch.replace(self.file)

    def read(self) -> dict[str, Any]:
        """The last content; empty when there is none."""
        try:
            content: dict[str, Any] = json.loads(self.file.read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return content

    def running(self) -> dict[str, Any]:
        """The content if its runner is alive, else empty."""
        content = self.read()
        return content if content and _lives(content.get("runner", {})) else {}

    def _end_leftovers(self) -> None:
        """Wait for what a killed runner left (PostgreSQL may still be closing), then kill what stays."""
        deadline_s = time.monotonic() + LEFTOVER_GRACE_S
        entries = list(self.read().get("processes", {}).values())
        while (alive := [entry for entry in entries if _lives(entry)]) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        for entry in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(entry["pid"], signal.SIGKILL)
        self.file.unlink(missing_ok=True)


def identity(pid: int | None) -> dict[str, Any]:
    """A pid together with its start time, so that a reused pid is not mistaken for it."""
    return {"pid": pid, "started": _start_ticks(pid)}


def _lives(entry: dict[str, Any]) -> bool:
    return bool(entry.get("pid")) and entry.get("started") == _start_ticks(entry["pid"]) is not None


def _start_ticks(pid: int | None) -> str | None:
    """Linux only; elsewhere None, which counts as not alive: better to leave a process than to kill a stranger."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
