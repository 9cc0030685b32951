"""`lorry up`: what starts, in what order it stops, and that nothing outlives it. Real servers, stand-in processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from registry.embedded.ports import free_port
from registry.settings import Settings, child_environment

ADD_DEPLOYMENT = """
INSERT INTO base_models (name, path, template) VALUES ('base', '/nowhere', '[]');
INSERT INTO deployments (name, base_model, max_model_len, max_num_seqs, max_loras, max_lora_rank, max_cpu_loras)
VALUES ('base', 'base', 256, 4, 2, 8, 4);
"""


class Running:
    """One `lorry up` in a process of its own."""

    def __init__(self, data_dir: Path, **more: str) -> None:
        self.settings = Settings(
            data_dir=data_dir,
            api_port=free_port(),
            flower_port=free_port(),
            pg_port=free_port(),
            valkey_port=free_port(),
        )
        self.ports = {
            f"LORRY_{name.upper()}": str(getattr(self.settings, name))
            for name in ("data_dir", "api_port", "flower_port", "pg_port", "valkey_port")
        }
        self.output = data_dir.with_suffix(".out")
        self.process = self.begin(**more)

    def begin(self, **more: str) -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[3]
        script = Path(__file__).with_name("stand_in_stack.py")
        environment = child_environment(**self.ports, PYTHONPATH=str(root), **more)
        with self.output.open("ab") as output:
            return subprocess.Popen([sys.executable, script], stdout=output, stderr=output, env=environment)

    def said(self) -> str:
        return self.output.read_text()

    def state(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.settings.data_dir / "run" / "up.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def pid(self, name: str) -> int:
        return int(self.state()["processes"][name]["pid"])

    def events(self) -> list[str]:
        return (self.settings.data_dir / "events").read_text().splitlines()

    def wait_for(self, condition: Callable[[], object], within_s: float = 30) -> None:
        deadline_s = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline_s, self.said()
            time.sleep(0.05)

    def wait_up(self) -> None:
        self.wait_for(lambda: "up after" in self.said() or self.process.poll() is not None)
        assert self.process.poll() is None, self.said()

    def add_deployment(self) -> None:
        with psycopg.connect(self.settings.resolved_database_url.replace("+psycopg", "")) as connection:
            connection.execute(ADD_DEPLOYMENT)
        self.wait_for(lambda: "gpu-worker-base ready" in self.said())

    def family(self) -> list[psutil.Process]:
        children: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        return children


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    stack = Running(tmp_path / "data")
    yield stack
    family = stack.family() if stack.process.poll() is None else []
    stack.process.kill()
    stack.process.wait()
    for process in family:
        # Most are gone with the runner; the stand-in engine has no orphan watch as the real one has.
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert alive(family) == []


def alive(processes: list[psutil.Process], within_s: float = 10) -> list[psutil.Process]:
    """Those that still run after the time given; a zombie that its new parent has not reaped yet does not run."""
    deadline_s = time.monotonic() + within_s
    while (found := [process for process in processes if _runs(process)]) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return found


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def order(events: list[str], *expected: str) -> bool:
    places = [events.index(line) for line in expected]
    return places == sorted(places)


def test_ctrl_c_stops_stage_by_stage_and_the_database_last(running: Running) -> None:
    running.wait_up()
    running.add_deployment()
    family = running.family()

    running.process.send_signal(signal.SIGINT)

    assert running.process.wait(30) == 0, running.said()
    events = running.events()
    assert order(events, "api ended", "gpu-worker asked", "gpu-worker ended", "dispatcher asked"), events
    assert order(events, "api ended", "io-worker asked", "io-worker ended", "flower asked"), events
    # Each stand-in reaches the database at its end, or it would not get to say so.
    assert {line.split()[0] for line in events if line.endswith("ended")} == {
        *("api", "gpu-worker", "io-worker", "dispatcher", "flower")
    }
    assert alive(family, within_s=0) == []
    assert not (running.settings.data_dir / "run" / "up.json").exists()


def test_a_second_ctrl_c_does_not_wait_for_the_drain(tmp_path: Path) -> None:
    stack = Running(tmp_path / "data", STAND_IN_DRAIN_S="60")
    stack.wait_up()
    family = stack.family()
    stack.process.send_signal(signal.SIGINT)
    stack.wait_for(lambda: "api asked" in stack.events())

    stack.process.send_signal(signal.SIGINT)

    assert stack.process.wait(10) == 0, stack.said()
    assert alive(family, within_s=0) == []


def test_nothing_survives_kill_9_of_the_runner_and_the_next_start_works(running: Running) -> None:
    running.wait_up()
    family = running.family()
    assert len(family) >= 7

    running.process.kill()
    running.process.wait()

    assert alive(family) == []
    running.output.unlink()
    running.process = running.begin()
    running.wait_up()


def test_a_killed_worker_takes_its_engine_along_and_is_started_again(running: Running) -> None:
    running.wait_up()
    running.add_deployment()
    worker = running.pid("gpu-worker-base")
    engine = psutil.Process(int((running.settings.data_dir / "engine.pid").read_text()))

    os.kill(worker, signal.SIGKILL)

    assert alive([engine]) == []
    running.wait_for(lambda: _ready_again(running, worker))
    assert "gpu-worker-base ended (signal SIGKILL); starting it again in 0.5 s" in running.said()


def _ready_again(running: Running, old_pid: int) -> bool:
    entry = running.state()["processes"]["gpu-worker-base"]
    return bool(entry["state"] == "ready" and entry["pid"] != old_pid and entry["restarts"] == 1)


def test_a_second_runner_on_the_same_data_directory_is_refused(running: Running) -> None:
    running.wait_up()
    second = running.begin()
    assert second.wait(20) == 1
    assert f"already (pid {running.process.pid})" in running.said()
    assert running.process.poll() is None


def test_the_generated_flower_password_is_printed_kept_and_closed_to_others(running: Running) -> None:
    running.wait_up()
    file = running.settings.data_dir / "secrets" / "flower"
    assert f"password {file.read_text().strip()}" in running.said()
    assert file.stat().st_mode & 0o077 == 0
