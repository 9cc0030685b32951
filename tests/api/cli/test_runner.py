"""One supervised child: ready, restarted, given its grace, killed with its group."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from api.cli.runner import Child
from registry.embedded.launch import Launch
from registry.errors import Unavailable
from registry.settings import child_environment

SLEEPS = "import time; time.sleep(60)"
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); {SLEEPS}"
FAILS = "print('no such model'); raise SystemExit(3)"


class Observed:
    """A child with what it said and the states it went through."""

    def __init__(self, folder: Path, code: str, *, grace_s: float = 5, ready_when: str | None = None) -> None:
        self.said: list[str] = []
        self.states: list[str] = []
        self.log = folder / "child.log"
        self.child = Child(
            Launch("child", (sys.executable, "-c", code), grace_s=grace_s),
            log=self.log,
            environment=child_environment(),
            folder=folder,
            ready=self._probe(ready_when) if ready_when else None,
            say=self.said.append,
            changed=lambda: self.states.append(self.child.state),
        )

    def _probe(self, word: str) -> Callable[[int], Awaitable[bool]]:
        async def seen(_: int) -> bool:
            return word in self.log.read_text()

        return seen


async def until(condition: Callable[[], object], within_s: float = 15) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.02)


async def test_a_child_becomes_ready_and_stops_when_asked(tmp_path: Path) -> None:
    seen = Observed(tmp_path, "print('serving', flush=True); " + SLEEPS, ready_when="serving")
    seen.child.begin()
    await seen.child.wait_ready(15)
    pid = seen.child.pid
    await seen.child.stop()
    assert seen.states == ["starting", "ready", "stopping", "stopped"]
    assert pid is not None
    assert not psutil.pid_exists(pid)
    await seen.child.stop()


async def test_a_child_that_ends_is_started_again_later_each_time(tmp_path: Path) -> None:
    seen = Observed(tmp_path, FAILS, ready_when="never")
    seen.child.begin()
    await until(lambda: seen.child.deaths == 2)
    await seen.child.stop()
    assert seen.said[:2] == [
        "child ended (exit code 3); starting it again in 0.5 s",
        "child ended (exit code 3); starting it again in 1.0 s",
    ]


async def test_waiting_for_a_child_that_fails_raises_with_its_last_lines(tmp_path: Path) -> None:
    seen = Observed(tmp_path, FAILS, ready_when="never")
    seen.child.begin()
    with pytest.raises(Unavailable, match=r"ended 1 times(.|\n)*no such model"):
        await seen.child.wait_ready(15)
    await seen.child.stop()


async def test_a_child_that_is_late_is_reported_with_the_time_it_had(tmp_path: Path) -> None:
    seen = Observed(tmp_path, SLEEPS, ready_when="never")
    seen.log.touch()
    seen.child.begin()
    with pytest.raises(Unavailable, match="not ready within 0 s"):
        await seen.child.wait_ready(0.3)
    await seen.child.stop()


async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    seen = Observed(tmp_path, IGNORES_SIGTERM, grace_s=0.5, ready_when="up")
    seen.child.begin()
    await seen.child.wait_ready(15)
    begun_at_s = time.monotonic()
    await seen.child.stop()
    assert time.monotonic() - begun_at_s >= 0.5
    assert "child did not stop within 0 s; killed" in seen.said
    assert seen.child.pid is None


async def test_hurry_cuts_a_stop_that_is_waiting_short(tmp_path: Path) -> None:
    seen = Observed(tmp_path, IGNORES_SIGTERM, grace_s=60, ready_when="up")
    seen.child.begin()
    await seen.child.wait_ready(15)
    stopping = asyncio.create_task(seen.child.stop())
    await until(lambda: seen.child.state == "stopping")
    seen.child.hurry()
    await asyncio.wait_for(stopping, 10)


async def test_what_a_killed_leader_leaves_in_its_group_goes_with_it(tmp_path: Path) -> None:
    spawns = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', '{SLEEPS}']).pid, flush=True)"
    seen = Observed(tmp_path, f"{spawns}; {SLEEPS}", ready_when="\n")
    seen.child.begin()
    await seen.child.wait_ready(15)
    orphan = psutil.Process(int(seen.log.read_text()))
    assert seen.child.pid is not None
    os.kill(seen.child.pid, signal.SIGKILL)
    await until(lambda: not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE)
    await seen.child.stop()


async def test_a_large_log_is_put_aside_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.cli.runner.LARGEST_LOG_BYTES", 10)
    seen = Observed(tmp_path, SLEEPS)
    seen.log.write_text("twenty bytes of lines\n")
    seen.child.begin()
    await seen.child.wait_ready(15)
    await seen.child.stop()
    assert seen.log.read_text() == ""
    assert (tmp_path / "child.log.1").read_text() == "twenty bytes of lines\n"
