"""running -> succeeded, failed: outcomes become rows, outputs and tallies, in one statement per group.

The fence decides: an outcome of a job that was taken away matches nothing and leaves nothing.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy import text
from sqlalchemy.orm import Session

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""NUL is a token of every byte-level vocabulary, so a model may write it; PostgreSQL cannot hold it."""

_SETTLE = text("""
WITH outcome AS (
    SELECT * FROM jsonb_to_recordset(cast(:outcomes AS jsonb)) AS o (
        job_id uuid, fence integer, state text, text text, finish_reason text, prompt_tokens integer,
        output_tokens integer, timing jsonb, accounted_ms float8, swap_ms float8, engine_ms float8,
        overflow jsonb, error_code text, error_message text)
), settled AS (
    UPDATE jobs SET state = o.state, finished_at = clock_timestamp(), finish_reason = o.finish_reason,
        prompt_tokens = o.prompt_tokens, output_tokens = o.output_tokens,
        error_code = o.error_code, error_message = o.error_message,
        overflow = coalesce(o.overflow, jobs.overflow), timing = o.timing || jsonb_build_object(
            'total_ms', round((extract(epoch FROM clock_timestamp() - jobs.created_at) * 1000)::numeric, 3),
            'other_ms', greatest(0, round((extract(epoch FROM clock_timestamp() - jobs.created_at) * 1000
                                           - o.accounted_ms)::numeric, 3)))
    FROM outcome o
    WHERE jobs.id = o.job_id AND jobs.fence = o.fence AND jobs.state IN ('running')
    RETURNING jobs.id, jobs.tenant_id, jobs.deployment, jobs.adapter_key, jobs.batch_id, jobs.created_at,
        jobs.charged + coalesce((jobs.overflow ->> 'charged')::int, 0) AS charged,
        jobs.parent_id IS NOT NULL AS is_part, o.*
), kept AS (
    INSERT INTO job_outputs (day, job_id, tenant_id, text)
    SELECT (created_at AT TIME ZONE 'UTC')::date, id, tenant_id, text FROM settled WHERE state = 'succeeded'
), tallied AS (
    INSERT INTO tallies (tenant_id, deployment, day, adapter_key, batch_id, succeeded, failed, prompt_tokens,
                         output_tokens, charged, swap_ms, engine_ms)
    SELECT tenant_id, deployment, (clock_timestamp() AT TIME ZONE 'UTC')::date, adapter_key, batch_id,
           count(*) FILTER (WHERE state = 'succeeded' AND NOT is_part),
           count(*) FILTER (WHERE state = 'failed' AND NOT is_part),
           coalesce(sum(prompt_tokens) FILTER (WHERE NOT is_part), 0),
           coalesce(sum(output_tokens) FILTER (WHERE NOT is_part), 0),
           coalesce(sum(charged) FILTER (WHERE state = 'succeeded' AND NOT is_part), 0), sum(swap_ms), sum(engine_ms)
    FROM settled GROUP BY tenant_id, deployment, adapter_key, batch_id
)
SELECT id FROM settled
""")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one claimed job ended. `timing` lacks `total_ms` and `other_ms`: they are the database clock's."""

    job_id: uuid.UUID
    fence: int
    state: Literal["succeeded", "failed"]
    text: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    timing: dict[str, Any] | None = None
    accounted_ms: float = 0.0
    """The sum of the parts that `timing` names: the rest is `other_ms`."""
    swap_ms: float = 0.0
    engine_ms: float = 0.0
    overflow: dict[str, Any] | None = None
    """What was done to a document that was too long, if this run did it."""
    error_code: str | None = None
    error_message: str | None = None


def settle(session: Session, outcomes: Sequence[Outcome]) -> set[uuid.UUID]:
    """Write outcomes, outputs and tallies. The ids missing from the answer were fenced off: someone else owns them."""
    rows = [
        asdict(outcome)
        | {
            "job_id": str(outcome.job_id),
            "text": _storable(outcome.text),
            "error_message": _storable(outcome.error_message),
        }
        for outcome in outcomes
    ]
    return set(session.scalars(_SETTLE, {"outcomes": json.dumps(rows, ensure_ascii=False)}))


def _storable(words: str | None) -> str | None:
    """One odd character must not cost the whole group its outcomes: it becomes U+FFFD."""
    return None if words is None else _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", words)
