"""The one checker that follows every fault: acknowledged is finished, once, by the right adapter, counted, silent."""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.base_models import DEFAULT_TEMPLATE
from registry.prompts import PromptFormat
from registry.states import OPEN
from registry.transitions import Claimed, ClaimedAdapter
from tests.e2e.crew import eventually
from tests.faults.cluster import Cluster
from tests.faults.load import CANARY
from tests.faults.servers import kept_by_broker
from workers.fake_markers import digest
from workers.preparation import Preparation

SECRETS = re.compile(rb"whsec_[A-Za-z0-9+/=]{8,}|lorry_[a-z0-9]{8}_[A-Za-z0-9_-]{20,}|" + CANARY.encode())

_JOBS = text("""
SELECT j.id, j.state, j.tenant_id, j.fence, j.batch_id, j.error_code, j.crashes, i.body, o.text,
       a.adapter_id, a.name, a.version, a.digest, a.path, b.path AS base_path, d.max_model_len
FROM jobs j JOIN deployments d ON d.name = j.deployment JOIN base_models b ON b.name = d.base_model
LEFT JOIN job_inputs i ON i.job_id = j.id LEFT JOIN job_outputs o ON o.job_id = j.id
LEFT JOIN tenant_adapters a ON a.tenant_id = j.tenant_id AND a.adapter_id = j.adapter_id
""")
_COUNTED = text("""
SELECT tenant_id, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(cancelled) AS cancelled,
       sum(expired) AS expired
FROM (SELECT tenant_id, succeeded, failed, cancelled, expired FROM tallies
      UNION ALL SELECT tenant_id, succeeded, failed, cancelled, expired FROM usage_days) all_counts
GROUP BY tenant_id
""")
_OUTPUTS = text("SELECT count(*) AS rows, count(DISTINCT job_id) AS jobs FROM job_outputs")
_BATCHES = text("""
SELECT b.id, b.status, b.total, b.succeeded + b.failed + b.cancelled + b.expired AS ended,
       count(j.id) AS lines, count(j.id) FILTER (WHERE j.state = 'succeeded') AS good, b.succeeded
FROM batches b LEFT JOIN jobs j ON j.batch_id = b.id GROUP BY b.id
""")
_ON_THE_DEAD = text("""
SELECT count(*) FROM jobs JOIN workers w ON w.id = jobs.worker
WHERE jobs.state = 'running' AND (w.state IN ('dead', 'ended') OR w.beat_at < now() - make_interval(secs => :late_s))
""")
_OPEN = text("SELECT count(*) FROM jobs WHERE state = ANY(:open)")


@dataclass
class Verdict:
    """What the checker found. All empty: nothing is lost, doubled, mixed up, miscounted or leaked."""

    jobs: int = 0
    states: Counter[str] = field(default_factory=Counter)
    lost: list[uuid.UUID] = field(default_factory=list)
    wrong_end: list[tuple[uuid.UUID, str, str | None]] = field(default_factory=list)
    doubled: int = 0
    wrong_output: list[uuid.UUID] = field(default_factory=list)
    miscounted: list[Any] = field(default_factory=list)
    on_dead_workers: int = 0
    leaks: list[str] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, Any]:
        """What is not as it has to be, by name."""
        names = ("lost", "wrong_end", "doubled", "wrong_output", "miscounted", "on_dead_workers", "leaks")
        return {name: found for name in names if (found := getattr(self, name))}

_NO_HURRY = text(
    "SELECT set_config('idle_in_transaction_session_timeout', '0', true), set_config('statement_timeout', '0', true)"
)
"""Of a long run there are 200,000 jobs to look at, one by one, in one transaction."""


def settled(cluster: Cluster, *, within_s: float = 60.0) -> None:
    """Wait until no job is open."""
    eventually(lambda: not count(cluster, _OPEN, open=list(OPEN)), within_s=within_s)


def check(cluster: Cluster, *, within_s: float = 60.0) -> Verdict:
    """Wait for the end of everything, look at everything. AssertionError with what was found wrong."""
    settled(cluster, within_s=within_s)
    verdict = inspect(cluster)
    assert not verdict.faults, verdict.faults
    return verdict


def inspect(cluster: Cluster) -> Verdict:
    """Look at every job, count, worker and log as they are now."""
    with cluster.db.transaction() as session:
        session.execute(_NO_HURRY)
        verdict = Verdict()
        _look_at_jobs(session, cluster.load.acknowledged, verdict)
        outputs = session.execute(_OUTPUTS).one()
        verdict.doubled += outputs.rows - outputs.jobs
        late_s = cluster.settings.lease_s + 30
        verdict.on_dead_workers = int(session.scalar(_ON_THE_DEAD, {"late_s": late_s}) or 0)
        _look_at_batches(session, verdict)
    verdict.leaks = list(leaks(cluster))
    return verdict


def _look_at_jobs(session: Session, acknowledged: dict[uuid.UUID, frozenset[str]], verdict: Verdict) -> None:
    expected = Expected()
    by_tenant: Counter[tuple[str, str]] = Counter()
    seen = set()
    for row in session.execute(_JOBS):
        seen.add(row.id)
        verdict.states[row.state] += 1
        by_tenant[row.tenant_id, row.state] += 1
        if row.state in OPEN and row.id in acknowledged:
            verdict.lost.append(row.id)
        if row.state not in acknowledged.get(row.id, {row.state}) and row.state not in OPEN:
            verdict.wrong_end.append((row.id, row.state, row.error_code))
        if (row.text is not None) != (row.state == "succeeded") or (
            row.state == "succeeded" and row.text != expected.output(row)
        ):
            verdict.wrong_output.append(row.id)
    verdict.jobs = len(seen)
    verdict.lost += acknowledged.keys() - seen
    for counted in session.execute(_COUNTED):
        for state in ("succeeded", "failed", "cancelled", "expired"):
            billed, ended = int(getattr(counted, state)), by_tenant.pop((counted.tenant_id, state), 0)
            verdict.doubled += max(0, billed - ended)
            if billed != ended:
                verdict.miscounted.append((counted.tenant_id, state, billed, ended))
    verdict.miscounted += [(key, "never counted", n) for key, n in by_tenant.items() if key[1] not in OPEN]


def _look_at_batches(session: Session, verdict: Verdict) -> None:
    for row in session.execute(_BATCHES):
        ended = row.status in ("completed", "expired", "cancelled")
        if (
            row.ended > row.total
            or row.good < row.succeeded
            or (ended and (row.ended, row.good) != (row.total, row.succeeded))
        ):
            verdict.miscounted.append(("batch", str(row.id), row.status, row.total, row.ended))


class Expected:
    """What the engine without a model answers, worked out from a job's own row: adapter's name and prompt."""

    def __init__(self) -> None:
        self._preparations: dict[str, Preparation] = {}
        self._known: dict[tuple[str, int, str], str] = {}

    def output(self, row: Any) -> str:
        """The one right text for this job."""
        key = (row.tenant_id, row.adapter_id or 0, json.dumps(row.body, sort_keys=True))
        if key not in self._known:
            self._known[key] = digest(self._preparation(row).held_job(_claimed(row)).generation)
        return self._known[key]

    def _preparation(self, row: Any) -> Preparation:
        base: str = row.base_path
        if base not in self._preparations:
            self._preparations[base] = Preparation(PromptFormat(Path(base), DEFAULT_TEMPLATE), row.max_model_len)
        return self._preparations[base]


def _claimed(row: Any) -> Claimed:
    adapter = None
    if row.adapter_id is not None:
        adapter = ClaimedAdapter(row.adapter_id, row.name, row.version, row.path, row.digest, "ready")
    return Claimed(
        job_id=row.id,
        fence=row.fence,
        tenant_id=row.tenant_id,
        turn=0,
        crashes=0,
        attempts=0,
        queued_ms=0.0,
        body=row.body,
        adapter=adapter,
    )


def leaks(cluster: Cluster) -> Iterator[str]:
    """Files outside the registry that hold a tenant's text or a secret."""
    watched: Iterable[Path] = (
        *cluster.folder.glob("*.log"),
        *(cluster.settings.data_dir / "logs").glob("*"),
        *kept_by_broker(cluster.settings.data_dir),
    )
    for file in watched:
        found = SECRETS.search(file.read_bytes())
        if found:
            yield f"{file.name}: {found.group()[:24]!r}"


def count(cluster: Cluster, statement: Any, **values: Any) -> int:
    """One number from the registry."""
    with cluster.db.transaction() as session:
        return int(session.scalar(statement, values) or 0)
