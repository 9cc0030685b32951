"""A worker's presence: its row, its beat, and the jobs it must let go. One thread, one connection of its own."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from registry import metrics, presence, transitions, wake
from registry.db import Database
from registry.errors import Unavailable
from registry.logs import get_logger
from registry.presence import Beat

RETRY_S = 1.0
END_S = 2.0
LISTEN_S = 0.5
"""How soon `end` is heard."""

_log = get_logger("presence")


class Presence:
    """Registers at once, then beats until `end`. `worker_id` changes when this incarnation was declared dead."""

    def __init__(
        self,
        database: Database,
        url: str,
        name: str,
        deployment: str,
        capacity: int,
        beat_s: float,
        sizing: dict[str, Any] | None = None,
    ) -> None:
        self._database = database
        self._url = url
        self._name = name
        self._deployment = deployment
        self._capacity = capacity
        self._beat_s = beat_s
        self._sizing = sizing
        self._state = self._written = "starting"
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.asked_to_drain = threading.Event()
        """An operator wants this worker to hand back, finish and exit."""
        self._report: Callable[[], Beat] = lambda: Beat(0, 0, {})
        self._held: Callable[[], set[uuid.UUID]] = set
        self._abandon: Callable[[set[uuid.UUID]], None] = lambda _ids: None
        self._in_hand: Callable[[], set[uuid.UUID]] | None = None
        self.worker_id = self._register()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)
        self._thread.start()

    def ready(
        self,
        report: Callable[[], Beat],
        held: Callable[[], set[uuid.UUID]],
        abandon: Callable[[set[uuid.UUID]], None],
        in_hand: Callable[[], set[uuid.UUID]] | None = None,
    ) -> None:
        """The worker takes jobs from now on: what to report, what it holds, how to let jobs go; `in_hand`: what any
        thread of it is busy with, from before the claim on."""
        self._report, self._held, self._abandon, self._in_hand = report, held, abandon, in_hand
        self.become("ready")

    def become(self, state: str) -> None:
        """Write `starting`, `ready` or `draining`, now or at the next beat that finds the registry there. Who drains
        does nothing else any more."""
        with self._lock:
            if self._state != "draining":
                self._state = state
        self._write_state()

    def _write_state(self) -> None:
        """One at a time: of two threads that write, the later state has to be the last in the row."""
        with self._lock:
            state = self._state
            try:
                with self._database.transaction() as session:
                    presence.become(session, self.worker_id, state)
            except (Unavailable, SQLAlchemyError):
                _log.warning("the worker's state could not be written yet", state=state)
            else:
                self._written = state

    def silence(self) -> None:
        """Stop beating, without waiting for it."""
        self._stop.set()

    def end(self) -> None:
        """Stop beating and say goodbye."""
        self._stop.set()
        self._thread.join(timeout=END_S)
        self.give_back()

    def give_back(self) -> None:
        """End, and give back what is still this worker's, in one transaction: nobody looks for jobs of an ended worker.

        While the registry is away nothing is written: the lease hands the jobs to others.
        """
        try:
            with self._database.transaction() as session:
                presence.become(session, self.worker_id, "ended")  # first: it ends claims that are under way
                back = transitions.let_go(session, self.worker_id)
        except (Unavailable, SQLAlchemyError):
            _log.warning("the registry is away; this worker's jobs are taken back after its lease")
            return
        if back:
            _log.warning("jobs were given back in a hurry", jobs=len(back))

    def _register(self) -> uuid.UUID:
        with self._database.transaction() as session:
            presence.supersede(session, self._name, socket.gethostname())
            return presence.register(
                session, self._name, self._deployment, socket.gethostname(), os.getpid(), self._capacity, self._sizing
            )

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with wake.listen(self._url, wake.CANCELLED, wake.DRAINED) as listener:
                    self._beat_until_lost(listener)
            except (Unavailable, SQLAlchemyError, psycopg.Error) as error:
                _log.warning("no beat: the registry is away", error=type(error).__name__)
                self._stop.wait(RETRY_S)

    def _beat_until_lost(self, listener: psycopg.Connection[tuple[object, ...]]) -> None:
        """A beat every `beat_s`; a cancel's notice makes us compare what we hold sooner."""
        while not self._stop.is_set():
            self._beat()
            due_s = time.monotonic() + self._beat_s
            while not self._stop.is_set() and (left_s := due_s - time.monotonic()) > 0:
                for notice in listener.notifies(timeout=min(left_s, LISTEN_S), stop_after=1):
                    if notice.channel == wake.DRAINED:
                        due_s = 0.0  # beat now, and see whether it is us
                    else:
                        self._let_go()

    def _beat(self) -> None:
        with self._database.transaction() as session:
            alive = presence.beat(session, self.worker_id, self._report())
            if presence.asked_to_drain(session, self.worker_id):
                self.asked_to_drain.set()
        if alive or self._stop.is_set():
            if self._written != self._state:
                self._write_state()
            self._let_go()
            return
        _log.error("this worker was declared dead: it lets all its jobs go and registers anew")
        metrics.FALSE_RESCUES.inc()
        self._abandon(self._held())
        self.worker_id = self._register()
        self._written = "starting"
        self._write_state()

    def _let_go(self) -> None:
        """Abandon held jobs that the registry no longer gives to us. Ids are read first: later claims are ours."""
        held = self._held()
        with self._database.transaction() as session:
            ours = presence.holding(session, self.worker_id)
        if lost := held - ours.keys():
            self._abandon(lost)
        if self._in_hand is not None and (forgotten := ours.keys() - self._in_hand()):
            self._hand_back([(job_id, ours[job_id]) for job_id in forgotten])

    def _hand_back(self, jobs: list[tuple[uuid.UUID, int]]) -> None:
        """Claims whose answer got lost on its way: the rows say that we run them, and nobody here knows of them."""
        with self._database.transaction() as session:
            back = transitions.hand_back(session, jobs)
        if back:
            _log.warning("jobs that this worker did not know it had are queued again", jobs=len(back))
