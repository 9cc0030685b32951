"""This process and everything below it, as /proc tells it: ids and memory. Elsewhere than on Linux: nothing."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int) -> set[int]:
    """Ids of all processes below `pid`."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # it has just ended
            # The name in brackets may hold anything; what follows it may not.
            parent = int((folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
            children[parent].append(int(folder.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = set(children[waiting.pop()]) - found
        found |= below
        waiting += below
    return found


def resident_bytes(pid: int) -> int:
    """Memory of `pid` and everything below it; pages they share count for each."""
    total = 0
    for member in {pid} | descendants(pid):
        with suppress(OSError, ValueError, IndexError):
            total += int((_PROC / str(member) / "statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def kill_descendants(pid: int) -> None:
    """SIGKILL everything below `pid`."""
    for member in descendants(pid):
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
