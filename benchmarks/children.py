"""Processes that a benchmark starts: each says it is ready, is spoken to in lines of JSON, and is gone at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.figures import ROOT
from registry.settings import child_environment

T = TypeVar("T")
START_S = 180.0


def until(look: Callable[[], T], *, within_s: float = 600.0, every_s: float = 0.05) -> T:
    """The first true answer of `look`. Raises TimeoutError when none comes."""
    deadline = time.monotonic() + within_s
    while not (answer := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came within {within_s} s")
        time.sleep(every_s)
    return answer


class Child:
    """`python -m MODULE …` in a session of its own, with its log."""

    def __init__(self, argv: list[str], log: Path, **environment: str) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *argv],
                cwd=ROOT,
                env=child_environment(PYTHONPATH=str(ROOT), **environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if _speaks(argv) else output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self.process.pid

    def check(self) -> None:
        """Raise RuntimeError, with the end of the log, when the process has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.log.name} ended:\n{self.log.read_text('utf-8', 'replace')[-4000:]}")

    def hear(self) -> Any:
        """The next line that the process says, as JSON."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(10)
            self.check()
        return json.loads(line)

    def ask(self, **command: Any) -> Any:
        """Send a command; its answer."""
        self.tell(**command)
        return self.hear()

    def tell(self, **command: Any) -> None:
        """Send a command; the answer is for `hear`."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def close(self, grace_s: float = 0.0) -> None:
        """End the process and everything it started."""
        if grace_s and self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace_s)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


def _speaks(argv: list[str]) -> bool:
    return argv[0].startswith("benchmarks.")
