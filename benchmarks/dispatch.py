"""What a backlog's length costs the dispatcher: 1,000,000 queued jobs against 1,000, of the same 500 tenants.

    python -m benchmarks.dispatch --json FILE [--quick]

Half of the jobs are one tenant's; every tenant has an adapter, and slots are many. The dispatcher's own ticks run
against PostgreSQL and Valkey; between them, unmeasured, what was sent is finished, as free workers would do.
`dispatch_1m_over_1k` is the time per dispatched job over the first 500 jobs, long over short backlog, median of paired
ratios. `every_tenant_first_round` is 1 when the very first 500 jobs of the long backlog were of 500 tenants; later
rounds begin with who has had least. --quick has 100,000 jobs instead of 1,000,000.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from redis import Redis
from sqlalchemy import text

from benchmarks import figures, model, options
from benchmarks.floods import body
from benchmarks.ratios import paired, turns
from benchmarks.stack import Stack
from registry import presence
from registry.deployments import EngineSettings
from registry.queues import make_celery, queue_name
from workers.dispatcher import Dispatcher

SIZES = {"short": 1_000, "long": 1_000_000}
QUICK_LONG = 100_000
CHUNK = 50_000
TENANTS = 500
ROUND = TENANTS
BASE = "base"
ENGINE = EngineSettings(max_model_len=512, max_loras=128, max_cpu_loras=TENANTS)
"""Slots enough that the dispatcher need not hold adapters back: 4 unfinished ones a slot."""

_TENANTS = text("INSERT INTO tenants (id, name) SELECT 'tenant-' || n, 'Tenant' FROM generate_series(0, :last) AS n")
_ADAPTERS = text("""
INSERT INTO tenant_adapters (tenant_id, name, version, path, rank, base_model, digest, size_bytes, facts, is_active)
SELECT id, 'adapter', 1, '/nowhere', 16, :base, repeat('0', 64), 1, '{}', true FROM tenants
""")
# Half of the jobs are tenant 0's, the others go round; arrivals are mixed.
_JOBS = text("""
WITH made AS (INSERT INTO jobs (id, tenant_id, deployment, adapter_id, model)
SELECT uuidv7(), a.tenant_id, :base, a.adapter_id, 'adapter' FROM generate_series(cast(:first AS integer), :last) AS n
JOIN tenant_adapters a ON a.tenant_id = 'tenant-' || (CASE WHEN n % 2 = 0 THEN 0 ELSE 1 + (n / 2) % (:tenants - 1) END)
RETURNING id, tenant_id, created_at)
INSERT INTO job_inputs (day, job_id, tenant_id, body)
SELECT (created_at AT TIME ZONE 'UTC')::date, id, tenant_id, cast(:body AS jsonb) FROM made
""")
_CLAIM = text("UPDATE jobs SET state = 'running', worker = :worker, fence = fence + 1 WHERE state = 'dispatched'")
_FINISH = text("""
UPDATE jobs SET state = 'succeeded', finished_at = now() WHERE state = 'running' RETURNING id, tenant_id, turn
""")
_RESTORE = text("""
WITH made AS (INSERT INTO jobs (id, tenant_id, deployment, adapter_id, model)
    SELECT uuidv7(), tenant_id, deployment, adapter_id, model FROM jobs WHERE id = ANY(:ids)
    RETURNING id, tenant_id, created_at)
INSERT INTO job_inputs (day, job_id, tenant_id, body)
SELECT (created_at AT TIME ZONE 'UTC')::date, id, tenant_id, cast(:body AS jsonb) FROM made
""")


@dataclass
class Round:
    """The first jobs that a dispatcher sent of one backlog."""

    seconds: float = 0.0
    ticks: int = 0
    ids: list[uuid.UUID] = field(default_factory=list)
    tenants: list[str] = field(default_factory=list)

    @property
    def ms_per_job(self) -> float:
        """Of the ticks alone."""
        return self.seconds * 1000 / len(self.ids)

    @property
    def served(self) -> int:
        """Distinct tenants among the first jobs, as many as there are tenants."""
        return len(set(self.tenants[:ROUND]))


class Backlog:
    """One stack with so many queued jobs, its dispatcher in this process, and stand-ins for workers."""

    def __init__(self, stack: Stack, jobs: int) -> None:
        self._stack = stack
        self._populate(jobs)
        self._dispatcher = Dispatcher(stack.settings, make_celery(stack.settings))
        self._redis = Redis.from_url(stack.settings.resolved_broker_url)
        with stack.db.transaction() as session:
            self._worker = presence.register(session, "stand-in", BASE, "here", 1, 256)
            presence.become(session, self._worker, "ready")

    def _populate(self, jobs: int) -> None:
        begun = time.monotonic()
        self._stack.base(BASE, model.random_model(), ENGINE)
        with self._stack.db.transaction() as session:
            session.execute(_TENANTS, {"last": TENANTS - 1})
            session.execute(_ADAPTERS, {"base": BASE})
        values = {"base": BASE, "tenants": TENANTS, "body": json.dumps(body())}
        for first in range(0, jobs, CHUNK):
            last = min(jobs, first + CHUNK) - 1
            with self._stack.db.transaction() as session:
                session.execute(_JOBS, {**values, "first": first, "last": last})
        self._stack.vacuum("jobs", "job_inputs")
        print(f"{jobs} queued jobs of {TENANTS} tenants in {time.monotonic() - begun:.0f} s", flush=True)

    def round(self) -> Round:
        """Ticks until a round has been sent."""
        taken = Round()
        if not self._dispatcher._leader.try_to_lead():
            raise RuntimeError("somebody else leads this stack")
        while len(taken.ids) < ROUND:
            with self._stack.db.transaction() as session:  # the stand-in lives
                presence.beat(session, self._worker, presence.Beat(0, 0, {}))
            begun = time.perf_counter()
            self._dispatcher.tick()
            taken.seconds += time.perf_counter() - begun
            taken.ticks += 1
            self._finish(taken)
        self._dispatcher._leader.resign()  # a leader that says nothing for seconds would lose the role anyhow
        with self._stack.db.transaction() as session:  # the next round finds the backlog as this one did
            session.execute(_RESTORE, {"ids": taken.ids, "body": json.dumps(body())})
        return taken

    def _finish(self, taken: Round) -> None:
        self._redis.delete(queue_name(BASE))
        with self._stack.db.transaction() as session:
            session.execute(_CLAIM, {"worker": self._worker})
            rows = sorted(session.execute(_FINISH).all(), key=lambda row: row.turn)
        taken.ids += [row.id for row in rows]
        taken.tenants += [row.tenant_id for row in rows]


def main(argv: list[str] | None = None) -> None:
    """Both backlogs in turns."""
    given = options.parse("dispatch", argv)
    sizes = SIZES | ({"long": QUICK_LONG} if given.quick else {})
    rounds: dict[str, list[Round]] = {name: [] for name in sizes}
    with ExitStack() as opened:
        backlogs = {}
        for name, jobs in sizes.items():
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="lorry-bench-")))
            backlogs[name] = Backlog(opened.enter_context(Stack(folder, dispatcher=False)), jobs)
        for number, name in turns(list(sizes), given.pairs):
            taken = backlogs[name].round()
            rounds[name].append(taken)
            print(
                f"round {number} {name:5} {taken.ms_per_job:6.2f} ms a job, {taken.ticks} ticks, "
                f"{taken.served} tenants among the first {ROUND} jobs",
                flush=True,
            )
    report(given, sizes, rounds)


def report(given: options.Options, sizes: dict[str, int], rounds: dict[str, list[Round]]) -> None:
    """Figures, table, chart."""
    costs = {name: [taken.ms_per_job for taken in runs] for name, runs in rounds.items()}
    rows = [[f"{sizes[name]:,}", f"{median(values):.2f}", rounds[name][0].served] for name, values in costs.items()]
    table: dict[str, Any] = {
        "title": "The dispatcher's ticks",
        "columns": ["queued jobs", "ms per dispatched job (median)", f"tenants among the first {ROUND} jobs"],
        "rows": rows,
    }
    measured = {
        "dispatch_1m_over_1k": median(paired(costs["long"], costs["short"])),
        "every_tenant_first_round": float(rounds["long"][0].served == TENANTS),
    }
    figures.write(given.json, measured, {"tables": [table], "ms_per_job": costs})


if __name__ == "__main__":
    main()
