"""Tenants over HTTP during a long run: single jobs with webhooks and batches of lines, each retried under one key.

What the API acknowledged is kept; what it refused is sent again, so that a doubled submission would show.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from sqlalchemy import text

from registry import ids
from registry.errors import Unavailable
from tests.faults.calls import Answered, call
from tests.faults.checker import count
from tests.faults.cluster import Cluster
from tests.faults.load import CANARY, NAMES, TENANTS

LOW, LINES = 400, 250
"""A backlog below LOW gets a batch of LINES more."""
PAUSE_S = 0.2

_QUEUED = text("SELECT count(*) FROM jobs WHERE state = 'queued'")
_LINES = text("SELECT id FROM jobs WHERE batch_id = :batch")


@dataclass
class Counts:
    """What the tenants saw."""

    jobs: int = 0
    batches: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    statuses: dict[int, int] = field(default_factory=dict)


class Traffic:
    """Two threads from `start` to `stop`."""

    def __init__(self, cluster: Cluster, url: str, receiver_url: str) -> None:
        self._cluster = cluster
        self._url = url
        self._receiver_url = receiver_url
        self._keys = {tenant: cluster.world.key(tenant) for tenant in TENANTS}
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._singles, self._bulk)]
        self._lock = threading.Lock()
        self.counts = Counts()
        self.batches: list[uuid.UUID] = []
        self.announced: set[str] = set()
        """Jobs whose ends have to reach the receiver, by wire id."""

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No new submission begins; one that is under way is finished."""
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def acknowledge_lines(self) -> int:
        """Every line of an acknowledged batch is acknowledged; how many batches are not whole."""
        broken = 0
        for batch in self.batches:
            with self._cluster.db.transaction() as session:
                lines = list(session.scalars(_LINES, {"batch": batch}))
            broken += len(lines) != LINES
            self._cluster.load.expect(lines, "succeeded", "failed")
        return broken

    def _singles(self) -> None:
        while not self._stop.wait(PAUSE_S):
            body = self._job() | {"webhook_url": self._receiver_url}
            answer = self._insist("/v1/jobs", body, "application/json")
            if answer is not None and answer.status == 202:
                self.counts.jobs += 1
                wire_id = answer.json["id"]
                self.announced.add(wire_id)
                self._cluster.load.expect([ids.from_wire("job", wire_id)], "succeeded", "failed")

    def _bulk(self) -> None:
        while not self._stop.wait(PAUSE_S):
            try:
                enough = count(self._cluster, _QUEUED) >= LOW
            except Unavailable:
                continue
            if enough:
                continue
            lines = "\n".join(json.dumps(self._job()) for _ in range(LINES)).encode()
            answer = self._insist("/v1/batches", lines, "application/x-ndjson")
            if answer is not None and answer.status == 200:
                self.counts.batches += 1
                self.batches.append(ids.from_wire("batch", answer.json["id"]))

    def _job(self) -> dict[str, Any]:
        number = next(self._numbers)
        return {
            "model": NAMES[number % len(NAMES)],
            "document": f"{CANARY} {number}",
            "custom_id": f"{CANARY}-{number}",
            "max_tokens": 16,
        }

    def _insist(self, path: str, body: Any, content_type: str) -> Answered | None:
        """Send until it is answered with something other than "later", always under the same key."""
        tenant = TENANTS[next(self._numbers) % len(TENANTS)]
        key = {"idempotency-key": uuid.uuid4().hex}
        while True:
            begun = time.monotonic()
            try:
                answer = call(self._url + path, self._keys[tenant], body, content_type=content_type, headers=key)
            except (OSError, HTTPException):
                answer = None
            with self._lock:
                self.counts.slowest_s = max(self.counts.slowest_s, time.monotonic() - begun)
                status = answer.status if answer else 0
                self.counts.statuses[status] = self.counts.statuses.get(status, 0) + 1
                self.counts.refused += status not in (200, 202)
            if answer is not None and answer.status not in (409, 429, 503):
                return answer
            if self._stop.is_set() and answer is None:
                return None
            time.sleep(0.2)
