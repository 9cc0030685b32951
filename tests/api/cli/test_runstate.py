"""The data directory's lock and `up.json`: one runner, no half-written file, nothing left of a killed one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.cli.runstate import RunState, identity
from registry.errors import Conflict


def test_a_second_holder_is_refused_until_the_first_gives_back(tmp_path: Path) -> None:
    first, second = RunState(tmp_path), RunState(tmp_path)
    first.acquire()
    first.write({"runner": identity(os.getpid())})
    with pytest.raises(Conflict, match=f"pid {os.getpid()}"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_running_is_what_a_living_runner_wrote(tmp_path: Path) -> None:
    state = RunState(tmp_path)
    assert state.running() == {}
    state.acquire()
    state.write({"runner": identity(os.getpid()), "api_url": "http://127.0.0.1:1"})
    assert RunState(tmp_path).running()["api_url"] == "http://127.0.0.1:1"
    # The same pid with another start time is a stranger.
    state.write({"runner": {"pid": os.getpid(), "started": "1"}})
    assert RunState(tmp_path).running() == {}
    state.release()
    assert RunState(tmp_path).read() == {}


def test_what_a_killed_runner_left_is_ended_and_a_stranger_with_its_pid_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.cli.runstate.LEFTOVER_GRACE_S", 0.1)
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    left, stranger = (subprocess.Popen(sleeper, start_new_session=True) for _ in range(2))
    dead = RunState(tmp_path)
    dead.acquire()
    dead.write({"processes": {"a": identity(left.pid), "b": {"pid": stranger.pid, "started": "1"}}})
    left_behind = dead.file.read_text()
    dead.release()
    dead.file.write_text(left_behind)

    RunState(tmp_path).acquire()

    assert left.wait(5) == -9
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
