"""The orphan watch: vLLM's processes outlive a host killed with SIGKILL and keep the device; this ends them."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path


def is_gone(pid: int) -> bool:
    """Whether a process is dead; a zombie that nobody has reaped counts as dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def die_with(host_pid: int, poll_s: float = 1.0) -> None:
    """Start a daemon thread that kills this process within about `poll_s` seconds of the host's death."""

    def poll() -> None:
        while not is_gone(host_pid):
            time.sleep(poll_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=poll, name="lorry-host-watch", daemon=True).start()
