"""Folding tallies into days: the dispatcher is the only writer, so no row is hot and no two writers meet."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.orm import Session

_FOLD = text("""
WITH taken AS (
    DELETE FROM tallies WHERE id IN (SELECT id FROM tallies ORDER BY id LIMIT 10000) RETURNING *
), summed AS (
    SELECT tenant_id, day, adapter_key, sum(succeeded) AS succeeded, sum(failed) AS failed,
           sum(prompt_tokens) AS prompt_tokens, sum(output_tokens) AS output_tokens,
           sum(swap_ms) AS swap_ms, sum(engine_ms) AS engine_ms
    FROM taken GROUP BY tenant_id, day, adapter_key
), folded AS (
    INSERT INTO usage_days AS u (tenant_id, day, adapter_key, succeeded, failed, prompt_tokens, output_tokens,
                                 swap_ms, engine_ms)
    SELECT * FROM summed
    ON CONFLICT (tenant_id, day, adapter_key) DO UPDATE SET
        succeeded = u.succeeded + excluded.succeeded, failed = u.failed + excluded.failed,
        prompt_tokens = u.prompt_tokens + excluded.prompt_tokens,
        output_tokens = u.output_tokens + excluded.output_tokens,
        swap_ms = u.swap_ms + excluded.swap_ms, engine_ms = u.engine_ms + excluded.engine_ms
)
SELECT count(*) FROM taken
""")


def fold(session: Session) -> int:
    """Move up to 10,000 tallies into their days; the number moved."""
    return int(session.scalar(_FOLD) or 0)
