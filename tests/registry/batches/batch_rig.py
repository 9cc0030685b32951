"""A batch's life, driven by hand: made by SQL, picked, claimed, settled, folded, ended."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select, text

from registry import tallies, transitions
from registry.batches import ends, outputs, views
from registry.batches.views import BatchView
from registry.ids import new_id
from registry.models import BadLine, Batch
from registry.models.batches import BATCH_ENDS
from registry.transitions import Outcome
from tests.world import World

RETENTION = timedelta(days=30)

_JOBS = text("""
INSERT INTO jobs (id, tenant_id, deployment, adapter_id, model, deadline, batch_id, line_no, custom_id)
SELECT uuidv7(), :tenant, 'Tiny', cast(:adapter AS integer), :model, :deadline, :batch, n, 'line-' || n
FROM generate_series(1, :lines) AS n WHERE n <> ALL(:bad) ORDER BY n
""")
_INPUTS = text("""
INSERT INTO job_inputs (day, job_id, tenant_id, body)
SELECT (created_at AT TIME ZONE 'UTC')::date, id, tenant_id,
       jsonb_build_object('document', 'Document ' || line_no, 'metadata', jsonb_build_object(), 'sampling',
           jsonb_build_object('max_tokens', 8, 'temperature', 0, 'top_p', 1, 'stop', jsonb_build_array(), 'seed', NULL))
FROM jobs WHERE batch_id = :batch
""")


class Batches:
    """Makes batches for a world and moves them as dispatcher and workers do."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.db = world.db

    def make(
        self, lines: int = 3, tenant_id: str = "acme", *, adapter: Any = None, bad: Sequence[int] = (), **fields: Any
    ) -> uuid.UUID:
        """A batch in progress; `bad` are the numbers of its refused lines."""
        self.world.tenant(tenant_id)
        self.world.base()
        batch_id = new_id()
        with self.db.transaction() as session:
            now = session.scalar(select(func.now()))
            assert now is not None
            batch = Batch(
                id=batch_id,
                tenant_id=tenant_id,
                source="file",
                endpoint=fields.pop("endpoint", "/v1/chat/completions"),
                status="in_progress",
                completion_window="24h",
                total=lines,
                failed=len(bad),
                error_total=len(bad),
                created_at=now,
                in_progress_at=now,
                expires_at=now + timedelta(hours=24),
                **fields,
            )
            session.add(batch)
            session.flush()
            values = {
                "tenant": tenant_id,
                "adapter": adapter.adapter_id if adapter else None,
                "model": adapter.name if adapter else "Tiny",
                "deadline": batch.expires_at,
                "batch": batch_id,
                "lines": lines,
                "bad": list(bad),
            }
            session.execute(_JOBS, values)
            session.execute(_INPUTS, values)
            for line in bad:
                session.add(
                    BadLine(
                        batch_id=batch_id,
                        line_no=line,
                        tenant_id=tenant_id,
                        code="invalid_json_line",
                        message="The line is not JSON.",
                    )
                )
        return batch_id

    def jobs(self, batch_id: uuid.UUID) -> dict[int, uuid.UUID]:
        """Line number -> job."""
        with self.db.transaction() as session:
            rows = session.execute(text("SELECT line_no, id FROM jobs WHERE batch_id = :id"), {"id": batch_id})
            return {row.line_no: row.id for row in rows}

    def run(self, batch_id: uuid.UUID, succeed: Sequence[int] = (), fail: Sequence[int] = ()) -> None:
        """Pick and claim what waits; settle these lines; hand the others back."""
        claimed = self.world.claim(self.world.worker(capacity=1000), self.world.pick(1000))
        lines = {job_id: line for line, job_id in self.jobs(batch_id).items()}
        outcomes, back = [], []
        for job in claimed:
            line = lines.get(job.job_id)
            if line in succeed:
                outcomes.append(succeeded(job.job_id, job.fence, f"Summary {line} “요약” \u2028\x7f \\ \t\n"))
            elif line in fail:
                outcomes.append(failed(job.job_id, job.fence))
            else:
                back.append((job.job_id, job.fence))
        with self.db.transaction() as session:
            transitions.settle(session, outcomes)
            transitions.hand_back(session, back)

    def window_passes(self, batch_id: uuid.UUID) -> None:
        """The deadline is now; the dispatcher looks."""
        with self.db.transaction() as session:
            session.execute(
                text("UPDATE jobs SET deadline = now() WHERE batch_id = :id AND finished_at IS NULL"), {"id": batch_id}
            )
        with self.db.transaction() as session:
            transitions.expire(session)

    def cancel(self, batch_id: uuid.UUID, tenant_id: str = "acme") -> bool:
        """The tenant asks."""
        with self.db.transaction() as session:
            return ends.request_cancel(session, tenant_id, batch_id)

    def dispatch(self) -> list[str]:
        """One round of the dispatcher's work on batches; the ends it brought."""
        with self.db.transaction() as session:
            transitions.cancel_lines(session)
        with self.db.transaction() as session:
            tallies.fold(session)
            ends.finalize(session)
        before = self._ended()
        ender, more = ends.Ender(RETENTION), True
        while more:
            with self.db.transaction() as session:
                more = ender.step(session)
        return [status for batch_id, status in self._ended().items() if batch_id not in before]

    def _ended(self) -> dict[uuid.UUID, str]:
        with self.db.transaction() as session:
            rows = session.execute(text("SELECT id, status FROM batches ORDER BY id")).all()
        return {row.id: row.status for row in rows if row.status in BATCH_ENDS}

    def view(self, batch_id: uuid.UUID, tenant_id: str = "acme") -> BatchView:
        """As the tenant reads it."""
        with self.db.transaction() as session:
            return views.get(session, tenant_id, batch_id)

    def output(self, batch_id: uuid.UUID, endpoint: str = "/v1/chat/completions") -> list[dict[str, Any]]:
        """The output file's lines."""
        return parsed(b"".join(outputs.stream_output(self.db, "acme", batch_id, endpoint)))

    def errors(self, batch_id: uuid.UUID) -> list[dict[str, Any]]:
        """The error file's lines."""
        return parsed(b"".join(outputs.stream_errors(self.db, "acme", batch_id, "/v1/chat/completions")))


def parsed(lines: bytes) -> list[dict[str, Any]]:
    """JSON lines, split at line feeds only."""
    assert lines == b"" or lines.endswith(b"\n")
    return [json.loads(line) for line in lines.split(b"\n")[:-1]]


def succeeded(job_id: uuid.UUID, fence: int, words: str) -> Outcome:
    """An outcome with a text."""
    timing = {
        "queued_ms": 1.0,
        "held_ms": 2.0,
        "swap": None,
        "prefill_ms": 3.0,
        "decode_ms": 4.0,
        "running_batch": {"jobs": 1, "adapters": 0},
    }
    return Outcome(
        job_id, fence, "succeeded", text=words, finish_reason="stop", prompt_tokens=11, output_tokens=5, timing=timing
    )


def failed(job_id: uuid.UUID, fence: int, code: str = "generation_failed") -> Outcome:
    """An outcome without one."""
    return Outcome(job_id, fence, "failed", error_code=code, error_message="Submit again.")
