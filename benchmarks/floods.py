"""Many like jobs at once, for the bare base: rows as a batch's ingestion leaves them."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from benchmarks.stack import Stack

_FLOOD = text("""
WITH made AS (
    INSERT INTO jobs (id, tenant_id, deployment, model)
    SELECT uuidv7(), :tenant, :deployment, :deployment FROM generate_series(1, :count)
    RETURNING id, tenant_id, created_at
)
INSERT INTO job_inputs (day, job_id, tenant_id, body)
SELECT (created_at AT TIME ZONE 'UTC')::date, id, tenant_id, cast(:body AS jsonb) FROM made RETURNING job_id
""")


@dataclass(frozen=True, slots=True)
class Flood:
    """So many jobs of one tenant, each with a prompt of so many words."""

    tenant: str
    jobs: int
    words: int = 6


def submit(stack: Stack, deployment: str, *floods: Flood) -> tuple[list[uuid.UUID], float]:
    """All in one transaction; the jobs' ids, and when it had committed (seconds of the database's clock)."""
    ids: list[uuid.UUID] = []
    for one in floods:
        stack.tenant(one.tenant)
    with stack.db.transaction() as session:
        for one in floods:
            values = {"tenant": one.tenant, "deployment": deployment, "count": one.jobs}
            ids += session.scalars(_FLOOD, {**values, "body": json.dumps(body(one.words))})
    return ids, stack.wake()


def body(words: int = 6, max_tokens: int = 16) -> dict[str, Any]:
    """A job's body as the registry keeps it."""
    sampling = {"max_tokens": max_tokens, "temperature": 0.0, "top_p": 1.0, "stop": [], "seed": None}
    return {"prompt": "order " * words, "sampling": sampling, "metadata": {}}
