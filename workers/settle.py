"""The grouped writer: claims, starts, outcomes and hand-backs of many jobs in few transactions, by one thread.

While PostgreSQL is away it keeps everything in memory and tries again: an outcome is never thrown away. The fence in
every write makes a late one harmless.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from registry import adapter_states, explanations, failpoints, metrics, transitions
from registry.db import Database
from registry.errors import Unavailable
from registry.logs import get_logger
from registry.transitions import Claimed, ClaimedAdapter, Division, Outcome, Spends

GATHER_S = 0.005
"""How long the first write of a group waits for company."""
MAX_GROUP = 512
RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0)
BACK: dict[str, Spends] = {"back": "nothing", "retry": "attempt", "crash": "crash"}
"""Kinds of hand-backs, and what the job spends."""
ENDS = ("settle", "divide", "quarantine", "blame", *BACK)
ENTRIES = ("claim", "start", "explain")
"""Two transactions, in this order of statements. A claim locks this worker's row before any job's, as does whoever
declares it dead or ends it: beside endings, which lock jobs, it could meet them crosswise."""

_log = get_logger("settle")


@dataclass(slots=True)
class _Write:
    kind: str
    job_id: uuid.UUID
    payload: Any
    future: Future[Any] = field(default_factory=Future)


class Writer:
    """One thread, one connection. Every method returns at once with a future that is set after the commit."""

    def __init__(
        self, database: Database, deployment: str, worker: Callable[[], uuid.UUID], *, quarantine_after: int = 3
    ) -> None:
        """`worker`: the incarnation to claim for, which changes when it was declared dead."""
        self._quarantine_after = quarantine_after
        self._database = database
        self._deployment = deployment
        self._worker = worker
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def claim(self, job_id: uuid.UUID) -> Future[Claimed | None]:
        """Take a dispatched job. None: it is not to be had (cancelled, taken, or its message is stale)."""
        return self._put(_Write("claim", job_id, None))

    def start(self, job_id: uuid.UUID, fence: int, reason: str | None = None) -> Future[bool]:
        """Mark a job as entering the engine, and why now. False: do not run it."""
        return self._put(_Write("start", job_id, (job_id, fence, reason)))

    def explain(self, job_id: uuid.UUID, fence: int, reason: str) -> None:
        """Keep on a held job what it waits for."""
        self._put(_Write("explain", job_id, (job_id, fence, reason)))

    def quarantine(
        self, job_id: uuid.UUID, tenant_id: str, adapter: ClaimedAdapter, reason: str
    ) -> Future[bool | None]:
        """Take an adapter version out of service and fail its open jobs."""
        return self._put(_Write("quarantine", job_id, (tenant_id, adapter, reason)))

    def blame(self, job_id: uuid.UUID, tenant_id: str, adapter_id: int, reason: str) -> None:
        """Count a load that the engine refused; after `quarantine_after` the adapter version is quarantined."""
        self._put(_Write("blame", job_id, (tenant_id, adapter_id, reason)))

    def settle(self, outcome: Outcome) -> Future[bool | None]:
        """Write an ending. False: the job was fenced off. None: the database refuses this outcome."""
        return self._put(_Write("settle", outcome.job_id, outcome))

    def divide(self, division: Division) -> Future[bool | None]:
        """Return a job to the backlog with its document in parts. False: it was fenced off."""
        return self._put(_Write("divide", division.job_id, division))

    def hand_back(self, job_id: uuid.UUID, fence: int, spends: Spends = "nothing") -> Future[bool | None]:
        """Return a job to the backlog. False: it was fenced off."""
        kind = next(kind for kind, spent in BACK.items() if spent == spends)
        return self._put(_Write(kind, job_id, (job_id, fence)))

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is there, then stop."""
        self._queue.put(None)
        self._thread.join(timeout_s)

    def _put(self, write: _Write) -> Future[Any]:
        self._queue.put(write)
        return write.future

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group, closing = self._gather(first)
            waiting = [write for write in group if write.future.set_running_or_notify_cancel()]
            for kinds in (ENDS, ENTRIES):
                self._write({kind: kept for kind in kinds if (kept := [one for one in waiting if one.kind == kind])})
            if closing:
                return

    def _gather(self, first: _Write) -> tuple[list[_Write], bool]:
        group, until = [first], time.monotonic() + GATHER_S
        while len(group) < MAX_GROUP:
            try:
                write = self._queue.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return group, False
            if write is None:
                return group, True
            group.append(write)
        return group, False

    def _write(self, groups: dict[str, list[_Write]]) -> None:
        """One transaction for all; if the database refuses something in it, let that spoil its own write only."""
        if not groups:
            return
        try:
            answers = self._until_written(groups)
        except Exception as error:  # noqa: BLE001 - whatever one bad write brings, this thread is the only writer
            self._in_parts(groups, error)
            return
        for kind, group in groups.items():
            # Two messages of one job may meet in a group: its claim is one thread's.
            answer = answers[kind].pop if kind == "claim" else answers[kind].get
            for write in group:
                write.future.set_result(answer(write.job_id, None))

    def _in_parts(self, groups: dict[str, list[_Write]], error: Exception) -> None:
        """Kind by kind, then one by one; what is refused by itself has spoilt the group."""
        whole = list(groups.items())
        parts = whole if len(whole) > 1 else [(kind, [write]) for kind, group in whole for write in group]
        if len(parts) > 1:
            for kind, group in parts:
                self._write({kind: group})
            return
        [(_, [write])] = parts
        _log.error("a write was refused", kind=write.kind, job=str(write.job_id), error=type(error).__name__)
        write.future.set_result(None)

    def _until_written(self, groups: dict[str, list[_Write]]) -> dict[str, dict[uuid.UUID, Any]]:
        tries = 0
        while True:
            try:
                with self._database.transaction() as session:
                    answers = {kind: self._statement(session, kind, group) for kind, group in groups.items()}
            except Unavailable:
                if tries == 0:
                    _log.warning("the registry is away; outcomes are kept", writes=sum(map(len, groups.values())))
                time.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
                tries += 1
            else:
                for kind in groups:
                    failpoints.reach(f"after_{kind}_commit")
                return answers

    def _statement(self, session: Session, kind: str, writes: list[_Write]) -> dict[uuid.UUID, Any]:
        if kind == "claim":
            ids = [write.job_id for write in writes]
            claimed = transitions.claim(session, ids, self._deployment, self._worker())
            return {job.job_id: job for job in claimed}
        payloads = [write.payload for write in writes]
        if kind == "start":
            done = transitions.start(session, [(job, fence) for job, fence, _ in payloads], [p[2] for p in payloads])
        elif kind == "explain":
            return dict.fromkeys(explanations.keep(session, payloads), True)
        elif kind == "quarantine":
            for tenant_id, adapter, reason in payloads:
                adapter_states.quarantine(session, tenant_id, adapter.name, adapter.version, reason)
            return {write.job_id: True for write in writes}
        elif kind == "blame":
            for blamed in payloads:
                adapter_states.count_load_failure(session, *blamed, limit=self._quarantine_after)
            return {}
        elif kind == "settle":
            done = transitions.settle(session, payloads)
        elif kind == "divide":
            done = {division.job_id for division in payloads if transitions.divide(session, division)}
        else:
            done = transitions.hand_back(session, payloads, spends=BACK[kind])
        fenced = len(writes) - len(done)
        if kind == "settle":
            for outcome in payloads:
                metrics.JOBS.labels(outcome.state).inc(outcome.job_id in done)
        if fenced:
            metrics.FENCED_WRITES.labels(kind).inc(fenced)
            _log.info("writes of jobs that are no longer ours were refused", kind=kind, jobs=fenced)
        return {write.job_id: write.job_id in done for write in writes}
