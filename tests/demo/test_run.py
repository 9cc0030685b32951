"""The demo's course, with the fake engine: everything but the model is real."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from registry.embedded.ports import free_port

pytestmark = pytest.mark.slow
DEADLINE_S = 120.0


class Demo:
    """`lorry demo` commands on one data directory, each a process of its own with its output in a file."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        ports = {f"LORRY_{name}_PORT": str(free_port()) for name in ("API", "FLOWER", "PG", "VALKEY")}
        # An empty hub cache: the base model is the stand-in, whatever this machine has.
        home = {"HF_HUB_CACHE": str(data_dir / "hub"), "LORRY_DATA_DIR": str(data_dir), "LORRY_ENGINE": "fake"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LORRY_")}
        self._environment = {**kept, **ports, **home}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *options: str) -> tuple[subprocess.Popen[bytes], Path]:
        output = self.data_dir / f"output-{len(self._started)}"
        command = [sys.executable, "-c", "from api.cli import app; app()", "demo", *options]
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file, env=self._environment)
        self._started.append(process)
        return process, output

    def end_all(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def processes(self) -> list[psutil.Process]:
        """What the stack on this data directory consists of, as its own file says."""
        file = self.data_dir / "run" / "up.json"
        entries = json.loads(file.read_text())["processes"].values() if file.exists() else []
        return [psutil.Process(entry["pid"]) for entry in entries if entry["pid"] and psutil.pid_exists(entry["pid"])]


@pytest.fixture
def demo(tmp_path: Path, smollm_dir: Path) -> Iterator[Demo]:
    shutil.copytree(smollm_dir, tmp_path / "data" / smollm_dir.name)
    made = Demo(tmp_path / "data")
    yield made
    made.end_all()


def _until(check: Callable[[], bool], process: subprocess.Popen[bytes], output: Path) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not check():
        if process.poll() is not None or time.monotonic() > deadline_s:
            pytest.fail(f"ended with {process.returncode}:\n{output.read_text()}")
        time.sleep(0.1)


def test_a_run_submits_reports_and_leaves_nothing_running(demo: Demo, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    process, output = demo.start("--jobs", "9", "--report", str(report))
    _until(lambda: bool(demo.processes()), process, output)
    stack = demo.processes()
    assert process.wait(DEADLINE_S) == 0, output.read_text()
    told = output.read_text()
    assert "9 of 9 jobs succeeded" in told
    assert "where to look next" in told
    figures = json.loads(report.read_text())
    assert figures["jobs"] == {"submitted": 9, "succeeded": 9, "failed": 0}
    assert {name: tenant["jobs"] for name, tenant in figures["tenants"].items()} == {
        "acme": 3,
        "globex": 2,
        "initech": 2,
        "hanbit": 2,
    }
    assert figures["swaps"]
    assert not [child for child in stack if child.is_running()]


def test_tenants_are_loaded_into_a_stack_that_was_kept_and_ctrl_c_ends_it_well(demo: Demo) -> None:
    keeper, output = demo.start("--jobs", "4", "--keep")
    _until(lambda: "Ctrl-C stops it" in output.read_text(), keeper, output)
    stack = demo.processes()
    loader, loaded = demo.start("--onboard-only")
    assert loader.wait(DEADLINE_S) == 0, loaded.read_text()
    told = loaded.read_text()
    assert told.count("is there") == 4
    assert len(set(re.findall(r"lorry_[a-z0-9]{8}_[\w-]{43}", told))) == 4
    _submit_as_printed(told)
    keeper.send_signal(signal.SIGINT)
    assert keeper.wait(DEADLINE_S) == 0, output.read_text()
    assert not [child for child in stack if child.is_running()]


def _submit_as_printed(told: str) -> None:
    """The printed line is good to paste: a shell's words of it, sent without asking for curl on this machine."""
    curl, _, url, *options = shlex.split(told[told.index("curl ") :].replace("\\\n", " "))
    given = [(options[n], options[n + 1]) for n in range(0, len(options), 2)]
    headers = dict(value.split(": ", 1) for option, value in given if option == "-H")
    (body,) = (value for option, value in given if option == "-d")
    answer = httpx2.post(url, headers=headers, content=body.encode())
    assert (curl, answer.status_code, answer.json()["status"]) == ("curl", 202, "queued")


def test_ctrl_c_stops_a_run_with_its_stack(demo: Demo) -> None:
    process, output = demo.start("--jobs", "4000")
    _until(lambda: "jobs submitted" in output.read_text() or "the jobs:" in output.read_text(), process, output)
    stack = demo.processes()
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) != 0
    assert "stopping what the demo started" in output.read_text()
    assert "Traceback" not in output.read_text()
    assert not [child for child in stack if child.is_running()]


def test_without_a_stack_there_is_nothing_to_load_tenants_into(demo: Demo) -> None:
    process, output = demo.start("--onboard-only")
    assert process.wait(DEADLINE_S) == 1
    assert "make up" in output.read_text()
