"""A job whose document is too long waits for its parts, which are jobs of their own, and then goes on with their texts.

    running -> queued, waiting      divide: by the worker that found it too long
    queued, waiting -> queued       release: all parts succeeded; their texts in order are its document now
    queued, waiting -> failed, ...  end_with_parts: a part ended otherwise, and the job ends like it

Parts are deleted as soon as their job goes on or has ended, whoever ended it: `sweep`. A part is counted nowhere by
itself: its tokens are its job's, which are counted when that one succeeds.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry import wake
from registry.transitions.back import WAIT_AGAIN

CHUNK = 100
_DAY = "(c.created_at AT TIME ZONE 'UTC')::date"

# Waiting and unended is queued, by a constraint; said so, because the index of what is queued must not be chosen: it
# holds the whole backlog.
_WAITING = "p.waits_for_parts AND p.finished_at IS NULL"

# A part has its job's place in the backlog, so that long documents are finished in the order of their turns, and what
# waits for parts is never much more than what workers hold.
_DIVIDE = text(f"""
WITH parent AS (
    UPDATE jobs SET {WAIT_AGAIN}, waits_for_parts = true
    WHERE id = :id AND fence = :fence AND state IN ('running')
    RETURNING id, seq, tenant_id, deployment, adapter_id, model, priority, deadline
), part AS MATERIALIZED (
    SELECT uuidv7() AS id, document, number
    FROM unnest(cast(:documents AS text[])) WITH ORDINALITY AS p (document, number)
), made AS (
    INSERT INTO jobs (id, seq, tenant_id, deployment, adapter_id, model, priority, deadline, parent_id, part_no)
    OVERRIDING SYSTEM VALUE
    SELECT part.id, seq, tenant_id, deployment, adapter_id, model, priority, deadline, parent.id, number
    FROM parent, part
), put AS (
    INSERT INTO job_inputs (day, job_id, tenant_id, body)
    SELECT (now() AT TIME ZONE 'UTC')::date, part.id, tenant_id,
           jsonb_build_object('document', document, 'metadata', '{{}}'::jsonb, 'sampling', cast(:sampling AS jsonb))
    FROM parent, part
)
SELECT id FROM parent
""")  # noqa: S608

_RELEASE = text(f"""
WITH ready AS MATERIALIZED (
    SELECT p.id, p.created_at FROM jobs p
    WHERE {_WAITING}
      AND NOT EXISTS (SELECT FROM jobs c WHERE c.parent_id = p.id AND c.state <> 'succeeded')
    LIMIT {CHUNK} FOR UPDATE SKIP LOCKED
), summed AS (
    SELECT c.parent_id, string_agg((SELECT o.text FROM job_outputs o WHERE o.day = {_DAY} AND o.job_id = c.id),
                                   E'\\n\\n' ORDER BY c.part_no) AS document,
           count(*) AS parts, sum(c.prompt_tokens) AS prompt_tokens, sum(c.output_tokens) AS output_tokens,
           sum(c.charged) AS charged, sum((c.timing ->> 'prefill_ms')::float8) AS prefill_ms,
           sum((c.timing ->> 'decode_ms')::float8) AS decode_ms
    FROM ready JOIN jobs c ON c.parent_id = ready.id GROUP BY c.parent_id
), told AS (
    UPDATE job_inputs i SET body = i.body || jsonb_build_object('reduced', coalesce(document, ''))
    FROM ready JOIN summed ON summed.parent_id = ready.id
    WHERE i.day = (ready.created_at AT TIME ZONE 'UTC')::date AND i.job_id = ready.id
)
UPDATE jobs SET waits_for_parts = false, overflow = jsonb_build_object(
    'strategy', 'map_reduce',
    'levels', 1 + coalesce((overflow ->> 'levels')::int, 0),
    'parts', parts + coalesce((overflow ->> 'parts')::int, 0),
    'prompt_tokens', summed.prompt_tokens + coalesce((overflow ->> 'prompt_tokens')::int, 0),
    'output_tokens', summed.output_tokens + coalesce((overflow ->> 'output_tokens')::int, 0),
    'charged', summed.charged + coalesce((overflow ->> 'charged')::int, 0),
    'prefill_ms', summed.prefill_ms + coalesce((overflow ->> 'prefill_ms')::float8, 0),
    'decode_ms', summed.decode_ms + coalesce((overflow ->> 'decode_ms')::float8, 0))
FROM summed WHERE jobs.id = summed.parent_id
RETURNING jobs.id
""")  # noqa: S608

_END = text(f"""
WITH bad AS MATERIALIZED (
    SELECT p.id, c.state, c.error_code, c.error_message
    FROM jobs p CROSS JOIN LATERAL (
        SELECT state, error_code, error_message FROM jobs
        WHERE parent_id = p.id AND state IN ('failed', 'cancelled', 'expired') ORDER BY part_no LIMIT 1) AS c
    WHERE {_WAITING}
    LIMIT {CHUNK} FOR UPDATE OF p SKIP LOCKED
), ended AS (
    UPDATE jobs SET state = bad.state, finished_at = clock_timestamp(), error_code = bad.error_code,
        error_message = bad.error_message
    FROM bad WHERE jobs.id = bad.id AND jobs.state IN ('queued')
    RETURNING jobs.id, jobs.tenant_id, jobs.adapter_key, jobs.batch_id, jobs.state
), counted AS (
    INSERT INTO tallies (tenant_id, day, adapter_key, batch_id, failed, cancelled, expired)
    SELECT tenant_id, (clock_timestamp() AT TIME ZONE 'UTC')::date, adapter_key, batch_id,
           count(*) FILTER (WHERE state = 'failed'), count(*) FILTER (WHERE state = 'cancelled'),
           count(*) FILTER (WHERE state = 'expired')
    FROM ended GROUP BY tenant_id, adapter_key, batch_id
)
SELECT id FROM ended
""")  # noqa: S608

_ENDED = text(f"""
UPDATE jobs SET waits_for_parts = false WHERE id IN (
    SELECT id FROM jobs WHERE waits_for_parts AND finished_at IS NOT NULL LIMIT {CHUNK} FOR UPDATE SKIP LOCKED)
RETURNING id
""")  # noqa: S608

# The texts by their keys: a day's table is large, and a join of it is planned by statistics that it may lack.
_DELETE = text("""
WITH gone AS (
    DELETE FROM jobs WHERE parent_id = ANY(:parents) RETURNING id, created_at, finished_at, worker
)
SELECT array_agg(id) AS ids, array_agg(DISTINCT (created_at AT TIME ZONE 'UTC')::date) AS days,
       bool_or(worker IS NOT NULL AND finished_at IS NULL) AS in_hand
FROM gone
""")


@dataclass(frozen=True, slots=True)
class Division:
    """A claimed job's document in parts, to be run with `sampling` (as `jobs.input_body` writes it)."""

    job_id: uuid.UUID
    fence: int
    documents: Sequence[str]
    sampling: dict[str, Any]


def divide(session: Session, division: Division) -> bool:
    """Put the job back, waiting, and its parts beside it. False: the job was taken away, and nothing was written."""
    values = {
        "id": division.job_id,
        "fence": division.fence,
        "documents": list(division.documents),
        "sampling": json.dumps(division.sampling, ensure_ascii=False),
    }
    return session.scalar(_DIVIDE, values) is not None


def release(session: Session) -> set[uuid.UUID]:
    """Let up to `CHUNK` jobs go on whose parts have all succeeded."""
    released = set(session.scalars(_RELEASE))
    _delete_parts(session, released)
    return released


def end_with_parts(session: Session) -> set[uuid.UUID]:
    """End up to `CHUNK` jobs of which a part failed, expired or was cancelled, as that part ended."""
    return set(session.scalars(_END))


def sweep(session: Session) -> set[uuid.UUID]:
    """Stop and delete the parts of up to `CHUNK` jobs that have ended meanwhile; the ids of these jobs."""
    ended = set(session.scalars(_ENDED))
    _delete_parts(session, ended)
    return ended


def _delete_parts(session: Session, parents: Collection[uuid.UUID]) -> None:
    if not parents:
        return
    gone = session.execute(_DELETE, {"parents": list(parents)}).one()
    for day in gone.days or ():
        for table in ("job_inputs", "job_outputs"):
            statement = f"DELETE FROM {table} WHERE day = :day AND job_id = ANY(:ids)"  # noqa: S608
            session.execute(text(statement), {"day": day, "ids": gone.ids})
    if gone.in_hand:
        session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": wake.CANCELLED})
