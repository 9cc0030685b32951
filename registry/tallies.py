"""Folding tallies into days and batches: the dispatcher alone writes, so no row is hot and no two writers meet."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.orm import Session

PACE_S = 30.0
"""A batch's pace forgets with this time constant: a line that ended a minute ago has an eighth of its weight left."""

NEWNESS = 0.2
"""What a new measurement counts in an adapter's average job length."""

# Tokens really used correct what the pick charged; what was cancelled or failed stays charged as estimated.
# Cancelled and expired lines count, but say nothing about how fast lines are worked off.
_FOLD = text("""
WITH taken AS (
    DELETE FROM tallies WHERE id IN (SELECT id FROM tallies ORDER BY id LIMIT 10000) RETURNING *
), by_day AS (
    SELECT tenant_id, day, adapter_key, sum(succeeded) AS succeeded, sum(failed) AS failed,
           sum(cancelled) AS cancelled, sum(expired) AS expired,
           sum(prompt_tokens) AS prompt_tokens, sum(output_tokens) AS output_tokens,
           sum(swap_ms) AS swap_ms, sum(engine_ms) AS engine_ms
    FROM taken GROUP BY tenant_id, day, adapter_key
), used AS (
    INSERT INTO usage_days AS u (tenant_id, day, adapter_key, succeeded, failed, cancelled, expired,
                                 prompt_tokens, output_tokens, swap_ms, engine_ms)
    SELECT * FROM by_day
    ON CONFLICT (tenant_id, day, adapter_key) DO UPDATE SET
        succeeded = u.succeeded + excluded.succeeded, failed = u.failed + excluded.failed,
        cancelled = u.cancelled + excluded.cancelled, expired = u.expired + excluded.expired,
        prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
        output_tokens = u.output_tokens + excluded.output_tokens,
        swap_ms = u.swap_ms + excluded.swap_ms, engine_ms = u.engine_ms + excluded.engine_ms
), ended AS (
    INSERT INTO jobs_ended AS e (tenant_id, jobs)
    SELECT tenant_id, sum(succeeded + failed + cancelled + expired) FROM taken GROUP BY tenant_id
    ON CONFLICT (tenant_id) DO UPDATE SET jobs = e.jobs + excluded.jobs
), by_batch AS (
    SELECT batch_id, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(cancelled) AS cancelled,
           sum(expired) AS expired, sum(prompt_tokens) AS prompt_tokens, sum(output_tokens) AS output_tokens,
           min(at) FILTER (WHERE succeeded + failed > 0) AS first_at
    FROM taken WHERE batch_id IS NOT NULL GROUP BY batch_id
), counted AS (
    UPDATE batches b SET succeeded = b.succeeded + n.succeeded, failed = b.failed + n.failed,
        cancelled = b.cancelled + n.cancelled, expired = b.expired + n.expired,
        input_tokens = b.input_tokens + n.prompt_tokens, output_tokens = b.output_tokens + n.output_tokens,
        pace = b.pace * exp(-least(700, extract(epoch FROM clock_timestamp() - coalesce(b.pace_at, clock_timestamp()))
                                        / :pace_s)) + (n.succeeded + n.failed) / :pace_s,
        pace_at = clock_timestamp(), pace_since = coalesce(b.pace_since, n.first_at)
    FROM by_batch n WHERE b.id = n.batch_id
), corrected AS (
    UPDATE service_counters c SET served = greatest(0, c.served + n.owed / t.weight)
    FROM (SELECT tenant_id, deployment, sum(prompt_tokens + output_tokens - charged) AS owed
          FROM taken WHERE deployment IS NOT NULL GROUP BY tenant_id, deployment) n
    JOIN tenants t ON t.id = n.tenant_id
    WHERE c.deployment = n.deployment AND c.tenant_id = n.tenant_id AND n.owed <> 0
), measured AS (
    INSERT INTO job_lengths AS l (deployment, tenant_id, adapter_key, prompt_tokens, output_tokens)
    SELECT deployment, tenant_id, adapter_key, sum(prompt_tokens) / sum(succeeded)::float8,
           sum(output_tokens) / sum(succeeded)::float8
    FROM taken WHERE deployment IS NOT NULL GROUP BY deployment, tenant_id, adapter_key HAVING sum(succeeded) > 0
    ON CONFLICT (deployment, tenant_id, adapter_key) DO UPDATE SET
        prompt_tokens = l.prompt_tokens + (excluded.prompt_tokens - l.prompt_tokens) * :newness,
        output_tokens = l.output_tokens + (excluded.output_tokens - l.output_tokens) * :newness
)
SELECT count(*) FROM taken
""")


def fold(session: Session) -> int:
    """Move up to 10,000 tallies into their days and batches; the number moved."""
    return int(session.scalar(_FOLD, {"pace_s": PACE_S, "newness": NEWNESS}) or 0)
