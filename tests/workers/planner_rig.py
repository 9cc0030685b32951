"""A planner on the fake engine, with a stand-in for the writer that remembers what it was told."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from registry import adapter_files
from registry.store import Store
from registry.transitions import ClaimedAdapter, Outcome, Spends
from tests.tiny_base import make_adapter_dir
from tests.workers.held_jobs import held_job
from workers.engine_fake import FakeEngine
from workers.generation import EngineConfig
from workers.held import HeldJob
from workers.planner import Planner
from workers.policy import Rules

WITHIN_S = 10.0


class RecordingWriter:
    """Says yes to everything, at once unless `starts_wait`, and keeps it."""

    def __init__(self) -> None:
        self.outcomes: dict[uuid.UUID, Outcome] = {}
        self.handed_back: dict[uuid.UUID, Spends] = {}
        self.refused: set[uuid.UUID] = set()
        self.gone: set[uuid.UUID] = set()
        self.started: list[uuid.UUID] = []
        self.starts_wait: Future[bool] | None = None
        self.admitted: dict[uuid.UUID, str] = {}
        self.explained: dict[uuid.UUID, str] = {}
        self.quarantined: list[tuple[str, int]] = []
        self.blamed: list[tuple[str, int, str]] = []

    def start(self, job_id: uuid.UUID, fence: int, reason: str) -> Future[bool]:
        self.started.append(job_id)
        self.admitted[job_id] = reason
        return self.starts_wait or _done(job_id not in self.gone)

    def explain(self, job_id: uuid.UUID, fence: int, reason: str) -> None:
        self.explained[job_id] = reason

    def quarantine(
        self, job_id: uuid.UUID, tenant_id: str, adapter: ClaimedAdapter, reason: str
    ) -> Future[bool | None]:
        self.quarantined.append((tenant_id, adapter.adapter_id))
        return _done(True)

    def blame(self, job_id: uuid.UUID, tenant_id: str, adapter_id: int, reason: str) -> None:
        self.blamed.append((tenant_id, adapter_id, reason))

    def settle(self, outcome: Outcome) -> Future[bool | None]:
        if outcome.job_id in self.refused and outcome.state == "succeeded":
            return _done(None)
        self.outcomes[outcome.job_id] = outcome
        return _done(True)

    def hand_back(self, job_id: uuid.UUID, fence: int, spends: Spends = "nothing") -> Future[bool | None]:
        self.handed_back[job_id] = spends
        return _done(True)


class PlannerRig:
    """`hold` jobs, look at `writer`. Two slots, eight places; every adapter's files are real."""

    def __init__(self, base: Path, scratch: Path, rules: Rules, **engine: Any) -> None:
        # No tokenizer in the model's folder: a prompt's token ids are its bytes, markers included.
        config = EngineConfig(str(scratch), "float32", 512, rules.max_live, rules.max_loras, 8, 8)
        self.engine = FakeEngine(config, **engine)
        self.engine.start()
        self.writer = RecordingWriter()
        self.died = threading.Event()
        store = Store(scratch / "store")
        self.planner = Planner(self.engine, rules, store, self.writer, self.died.set)  # type: ignore[arg-type]
        self._base, self._scratch = base, scratch
        self._files: dict[int, tuple[str, str]] = {}
        self._turns = itertools.count(1)

    def folder(self, adapter: int) -> Path:
        """The adapter's folder."""
        return self._scratch / f"adapter-{adapter}"

    def job(self, adapter: int = 0, **options: Any) -> HeldJob:
        """A job with the next turn, held from now on."""
        if adapter and adapter not in self._files:
            folder = make_adapter_dir(self.folder(adapter), self._base, seed=adapter)
            self._files[adapter] = str(folder), adapter_files.digest(folder)
        path, digest = self._files.get(adapter, ("", ""))
        turn = next(self._turns)
        return held_job(adapter, turn, held_at_s=time.monotonic(), path=path, digest=digest, **options)

    def hold(self, *jobs: HeldJob) -> None:
        """Hand all to the planner at once: one look of its loop sees them all."""

        def add_all() -> None:
            for job in jobs:
                self.planner._add(job)

        self.engine.loop.call_soon_threadsafe(add_all)

    def hold_abandoned(self, job: HeldJob) -> None:
        """In one turn of the planner's loop: a stop of the job, then the job."""

        def abandon_and_add() -> None:
            self.planner.abandon([job.job_id])
            self.planner._add(job)

        self.engine.loop.call_soon_threadsafe(abandon_and_add)

    def live(self, count: int) -> None:
        """Wait until so many jobs are in the engine."""
        until(lambda: self.planner.report().live == count)

    def close(self) -> None:
        self.planner.drain(0)
        self.engine.close()


def finish(*jobs: HeldJob) -> None:
    """Wait until these jobs' endings are written."""
    for job in jobs:
        job.done.result(WITHIN_S)


def until(holds: Callable[[], object]) -> None:
    """Poll with a deadline."""
    deadline_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.002)


def _done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future
