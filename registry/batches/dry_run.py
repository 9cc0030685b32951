"""What a batch would be, without making it: bad lines, exact tokens, a guess at the time, its use of the quotas."""

from __future__ import annotations

from typing import Final, Literal

import orjson
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.orm import Session

from registry import quotas
from registry.batches.create import Submission
from registry.batches.refusals import Refusal
from registry.batches.views import BatchError, BatchErrors
from registry.db import Database
from registry.errors import BadRequest
from registry.prompts import check_counts, lowered
from registry.settings import Settings

_ENOUGH_JOBS: Final = 20
# The tenant's latest jobs only: all of them would be a long read, and old ones say little about today's rate.
_RATE = text("""
SELECT count(*) AS jobs, extract(epoch FROM max(finished_at) - min(started_at))::float AS seconds,
       (SELECT count(*) FROM jobs WHERE tenant_id = :tenant AND state = 'queued') AS queued
FROM (SELECT state, started_at, finished_at FROM jobs WHERE tenant_id = :tenant ORDER BY seq DESC LIMIT 5000) AS recent
WHERE state = 'succeeded' AND finished_at > now() - interval '15 minutes'
""")


class Use(BaseModel):
    """What the batch would take, beside what is taken already and the limit of both."""

    takes: int
    used: int
    limit: int


class QuotaUse(BaseModel):
    """Places in the queue, and tokens of the day: prompts and all of `max_tokens`, which is the most it can come to."""

    queued_jobs: Use
    tokens_per_day: Use


class DryRun(BaseModel):
    """What would become of a batch; nothing was stored. `estimated_s` is null while too few jobs of yours have run."""

    object: Literal["batch.dry_run"] = "batch.dry_run"
    would_run: bool
    lines: int
    bad_lines: int
    errors: BatchErrors | None
    prompt_tokens: int
    max_output_tokens: int
    estimated_s: float | None
    quota_use: QuotaUse


class _Count:
    """Sums over the good lines."""

    def __init__(self) -> None:
        self.lines = self.prompt_tokens = self.max_output_tokens = 0

    def add(self, prompt_tokens: int, max_tokens: int) -> None:
        """One line more."""
        self.lines += 1
        self.prompt_tokens += prompt_tokens
        self.max_output_tokens += max_tokens


def dry_run(database: Database, submission: Submission, settings: Settings) -> DryRun:
    """What the finished submission would do. Counts every good line's tokens, which takes a while for many lines."""
    intake = submission.intake
    count = _count(submission)
    with database.transaction(submission.tenant_id) as session:
        time_s = estimated_s(session, submission.tenant_id, count.lines)
        limits = quotas.limits_of(session, submission.tenant_id, settings)
        used = quotas.used(session, submission.tenant_id)
    errors = [BatchError(**error) for error in intake.errors()]
    tokens = count.prompt_tokens + count.max_output_tokens
    return DryRun(
        would_run=intake.may_run,
        lines=intake.total,
        bad_lines=intake.refusals.total,
        errors=BatchErrors(data=errors) if errors else None,
        prompt_tokens=count.prompt_tokens,
        max_output_tokens=count.max_output_tokens,
        estimated_s=time_s,
        quota_use=QuotaUse(
            queued_jobs=Use(takes=count.lines, used=used.queued_jobs, limit=limits.queued_jobs),
            tokens_per_day=Use(takes=tokens, used=used.tokens_per_day, limit=limits.tokens_per_day),
        ),
    )


def _count(submission: Submission) -> _Count:
    """Count tokens as a worker would at the claim. A prompt that turns out too long is one more bad line here."""
    count = _Count()
    for spooled in submission.spool:
        resolved = submission.targets.resolved[spooled.target]
        body = orjson.loads(spooled.body)
        wanted = body["sampling"]
        try:
            prompt_tokens = len(submission.format_of(resolved.base_model).token_ids(body))
            max_tokens = wanted["max_tokens"]
            if body.get("on_overflow") == "truncate":
                prompt_tokens = max(1, min(prompt_tokens, resolved.max_model_len - max_tokens))
            elif body.get("on_overflow") == "map_reduce":
                count.add(prompt_tokens, max_tokens)
                continue
            if wanted.get("may_lower"):
                max_tokens = lowered(prompt_tokens, max_tokens, resolved.max_model_len)
            check_counts(prompt_tokens, max_tokens, resolved.max_model_len)
        except BadRequest as error:
            submission.intake.refusals.add(Refusal.of(error, spooled.line, spooled.custom_id))
        else:
            count.add(prompt_tokens, max_tokens)
    return count


def estimated_s(session: Session, tenant_id: str, lines: int) -> float | None:
    """When that many more lines would be done, at the rate of the tenant's jobs of the last quarter of an hour."""
    row = session.execute(_RATE, {"tenant": tenant_id}).one()
    if row.jobs < _ENOUGH_JOBS or not row.seconds:
        return None
    return round(float((row.queued + lines) * row.seconds / row.jobs), 1)
