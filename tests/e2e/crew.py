"""The processes of a stack, started by a test against the session's servers: dispatcher, workers, API."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import select, text

from registry.db import Database
from registry.models import Job, JobOutput, Worker
from registry.settings import Settings, child_environment

T = TypeVar("T")
ROOT = Path(__file__).parents[2]


def eventually(look: Callable[[], T | None], *, within_s: float = 30.0, every_s: float = 0.05) -> T:
    """The first true answer of `look`; AssertionError when the deadline passes."""
    deadline = time.monotonic() + within_s
    while not (answer := look()):
        assert time.monotonic() < deadline, f"nothing came within {within_s} s"
        time.sleep(every_s)
    return answer


class Member:
    """One process, with its log."""

    def __init__(
        self, argv: list[str], environment: dict[str, str], log: Path, before: tuple[str, ...] = (), root: Path = ROOT
    ) -> None:
        """`before`: a program that runs ours, as `unshare …`. `root`: the source tree."""
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-m", *argv],
                cwd=root,
                env=environment | {"PYTHONPATH": str(root)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> None:
        """SIGTERM to the leader only."""
        self.process.terminate()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def exit_code(self, within_s: float = 40.0) -> int:
        return self.process.wait(within_s)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Crew:
    """Starts members with one set of settings; everything is gone after `close`."""

    def __init__(self, settings: Settings, database: Database, logs: Path, **changes: str) -> None:
        self.settings = settings
        self.db = database
        self._logs = logs
        self._environment = child_environment(
            LORRY_DATABASE_URL=settings.resolved_database_url,
            LORRY_BROKER_URL=settings.resolved_broker_url,
            LORRY_DATA_DIR=str(settings.data_dir),
            **changes,
        )
        self.members: list[Member] = []

    def start(self, *argv: str, before: tuple[str, ...] = (), root: Path = ROOT, **changes: str) -> Member:
        return self._start(argv, changes, before=before, root=root)

    def _start(
        self, argv: tuple[str, ...], changes: dict[str, str], *, before: tuple[str, ...] = (), root: Path = ROOT
    ) -> Member:
        log = self._logs / f"{argv[0]}-{len(self.members)}.log"
        member = Member(list(argv), self._environment | changes, log, before, root)
        self.members.append(member)
        return member

    def dispatcher(self, *, root: Path = ROOT, **changes: str) -> Member:
        return self._start(("workers.dispatcher",), changes, root=root)

    def api(self, port: int, **changes: str) -> Member:
        """The API's process; it may not answer yet."""
        return self._start(("api",), {"LORRY_API_PORT": str(port)} | changes)

    def worker(
        self, deployment: str = "Tiny", *, device: str = "0", wait: bool = True, root: Path = ROOT, **changes: str
    ) -> Member:
        """A GPU worker; with `wait`, one that says it is ready."""
        gpu = ("workers.main", "gpu", "--deployment", deployment, "--device", device)
        member = self._start(gpu, changes, root=root)
        if wait:
            eventually(lambda: self.is_ready(member), within_s=90)
        return member

    def is_ready(self, member: Member) -> bool:
        """Whether this worker takes jobs. AssertionError when it has ended instead."""
        assert member.process.poll() is None, f"the worker ended at its start: {member.log}"
        return self.worker_row(member).get("state") == "ready"

    def worker_row(self, member: Member) -> dict[str, Any]:
        """The newest row of this process."""
        with self.db.transaction() as session:
            row = session.scalars(
                select(Worker).where(Worker.pid == member.pid).order_by(Worker.started_at.desc()).limit(1)
            ).one_or_none()
            return {} if row is None else {"id": row.id, "state": row.state, "held": row.held, "live": row.live}

    def states(self) -> dict[str, int]:
        """How many jobs are in each state."""
        with self.db.transaction() as session:
            return {row.state: row.n for row in session.execute(text("SELECT state, count(*) n FROM jobs GROUP BY 1"))}

    def finished(self, count: int, *, within_s: float = 60.0) -> None:
        """Wait until this many jobs have succeeded."""
        eventually(lambda: self.states().get("succeeded", 0) >= count, within_s=within_s)

    def outputs(self) -> dict[uuid.UUID, str]:
        """Every job's output text."""
        with self.db.transaction() as session:
            return {row.job_id: row.text for row in session.execute(select(JobOutput.job_id, JobOutput.text))}

    def jobs(self) -> list[Job]:
        with self.db.transaction() as session:
            return list(session.scalars(select(Job).order_by(Job.seq)))

    def close(self) -> None:
        for member in self.members:
            member.close()
