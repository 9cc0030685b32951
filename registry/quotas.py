"""What a tenant may use: jobs in the queue, bytes kept, POSTs a minute, tokens a day. Exact, and in PostgreSQL alone.

A limit is compared after the fact and inside its transaction: the tenant's counter is locked by then, so that nobody
can commit beside it, and a transaction that is over the limit leaves nothing. What ends is counted by folding tallies,
so that settling never waits for a counter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import Row, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from registry import tenants
from registry.errors import InsufficientQuota, RateLimited
from registry.models import TenantLimit
from registry.settings import Settings

WINDOW_S: Final = 60.0
MAX_RETRY_AFTER_S: Final = 120
"""The official OpenAI client gives up at once when it is told to wait longer."""
_QUEUE_RETRY_S: Final = 5

_LIMIT = """
coalesce(l.queued_jobs, :queued_jobs) AS queued_jobs, coalesce(l.stored_bytes, :stored_bytes) AS stored_bytes,
coalesce(l.posts_per_minute, :posts_per_minute) AS posts_per_minute,
coalesce(l.tokens_per_day, :tokens_per_day) AS tokens_per_day
"""
_OF_TENANT = "FROM (SELECT 1) AS one LEFT JOIN tenant_limits l ON l.tenant_id = :tenant"
_QUEUED = """
coalesce((SELECT jobs FROM jobs_taken WHERE tenant_id = :tenant), 0)
    - coalesce((SELECT jobs FROM jobs_ended WHERE tenant_id = :tenant), 0)
"""
_STORED = """
(SELECT coalesce(sum(bytes), 0) FROM files WHERE tenant_id = :tenant AND path IS NOT NULL)::bigint
    + (SELECT coalesce(sum(size_bytes), 0) FROM tenant_adapters
       WHERE tenant_id = :tenant AND state <> 'retired')::bigint
"""
_TOKENS = """
((SELECT coalesce(sum(prompt_tokens + output_tokens), 0) FROM usage_days
  WHERE tenant_id = :tenant AND day = (clock_timestamp() AT TIME ZONE 'UTC')::date)
 + (SELECT coalesce(sum(prompt_tokens + output_tokens), 0) FROM tallies
    WHERE tenant_id = :tenant AND day = (clock_timestamp() AT TIME ZONE 'UTC')::date))::bigint
"""
# Only this module's constants enter the statements' text; a caller's values are bound parameters.
_LIMITS = text(f"SELECT {_LIMIT} {_OF_TENANT}")
_QUEUE = text(f"SELECT {_QUEUED} AS queued, {_TOKENS} AS tokens_today, {_LIMIT} {_OF_TENANT}")
_BYTES = text(f"SELECT {_STORED}")
_USED = text(f"SELECT {_QUEUED} AS queued_jobs, {_STORED} AS stored_bytes, {_TOKENS} AS tokens_per_day")
_LOCK_TENANT = text("""
INSERT INTO jobs_taken (tenant_id) VALUES (:tenant) ON CONFLICT (tenant_id) DO UPDATE SET jobs = jobs_taken.jobs
""")
_TAKE_POST = text("""
INSERT INTO post_rates AS r (tenant_id, empty_at) VALUES (:tenant, clock_timestamp() + :step)
ON CONFLICT (tenant_id) DO UPDATE SET empty_at = greatest(r.empty_at, clock_timestamp()) + :step
    WHERE greatest(r.empty_at, clock_timestamp()) + :step <= clock_timestamp() + :window
RETURNING extract(epoch FROM empty_at - clock_timestamp())
""")
_FILL_S = text("SELECT extract(epoch FROM empty_at - clock_timestamp()) FROM post_rates WHERE tenant_id = :tenant")


@dataclass(frozen=True, slots=True)
class Limits:
    """A tenant's limits as they hold now."""

    queued_jobs: int
    stored_bytes: int
    posts_per_minute: int
    tokens_per_day: int


@dataclass(frozen=True, slots=True)
class Rate:
    """What is left of the POSTs of a minute: `remaining` at once, `full_in_s` until all of `limit` are there again.

    `wait_s` above 0: this one was refused and did not count; one is there again after so long.
    """

    limit: int
    remaining: int
    full_in_s: int
    wait_s: int = 0


def limits_of(session: Session, tenant_id: str, settings: Settings) -> Limits:
    """The tenant's own limits, else the defaults of the settings."""
    return Limits(*session.execute(_LIMITS, _of(tenant_id, settings)).one())


def set_limits(session: Session, tenant_id: str, **limits: int | None) -> None:
    """Give a tenant limits of its own; None goes back to the default, a limit not named stays. Raises NotFound."""
    tenants.get(session, tenant_id)
    fresh = insert(TenantLimit).values(tenant_id=tenant_id, **limits)
    if limits:
        session.execute(fresh.on_conflict_do_update(index_elements=[TenantLimit.tenant_id], set_=limits))


def used(session: Session, tenant_id: str) -> Row[Any]:
    """What counts against the limits now: `queued_jobs`, `stored_bytes`, `tokens_per_day`."""
    return session.execute(_USED, {"tenant": tenant_id}).one()


def reserve_jobs(session: Session, tenant_id: str, jobs: int, settings: Settings) -> None:
    """Call after inserting `jobs` of the tenant, late in the transaction: its other submissions wait from the insert to
    the commit. Raises RateLimited when the queue has no room now, InsufficientQuota when it never has for so many or
    when the day's tokens are used up."""
    row = session.execute(_QUEUE, _of(tenant_id, settings)).one()
    if jobs > row.queued_jobs:
        raise InsufficientQuota(
            f"{jobs} jobs are more than the {row.queued_jobs} that may be queued for you at a time; send fewer."
        )
    if row.tokens_today >= row.tokens_per_day:
        raise InsufficientQuota(
            f"You have used {row.tokens_today} of {row.tokens_per_day} tokens today; go on after midnight UTC."
        )
    if row.queued > row.queued_jobs:
        raise RateLimited(
            f"{row.queued - jobs} jobs are queued for you, and {row.queued_jobs} may be; wait until some end.",
            retry_after_s=_QUEUE_RETRY_S,
        )


def reserve_bytes(session: Session, tenant_id: str, settings: Settings) -> None:
    """Call after storing the row of a file or adapter, in its transaction. Raises InsufficientQuota when all that the
    tenant keeps is over its limit; what is deleted counts no longer at once."""
    session.execute(_LOCK_TENANT, {"tenant": tenant_id})
    limit = limits_of(session, tenant_id, settings).stored_bytes
    stored = session.scalars(_BYTES, {"tenant": tenant_id}).one()
    if stored > limit:
        raise InsufficientQuota(f"With this you would keep {stored} bytes; your limit is {limit}. Delete files first.")


def take_post(session: Session, tenant_id: str, settings: Settings) -> Rate:
    """Count one POST, if there is one left."""
    limit = limits_of(session, tenant_id, settings).posts_per_minute
    step_s = WINDOW_S / limit
    values = {"tenant": tenant_id, "step": timedelta(seconds=step_s), "window": timedelta(seconds=WINDOW_S)}
    fill_s = session.scalar(_TAKE_POST, values)
    if fill_s is not None:
        return Rate(limit, max(0, math.floor((WINDOW_S - float(fill_s)) / step_s + 1e-6)), math.ceil(fill_s))
    fill_s = float(session.scalar(_FILL_S, values) or 0)
    wait_s = min(MAX_RETRY_AFTER_S, max(1, math.ceil(fill_s + step_s - WINDOW_S)))
    return Rate(limit, 0, math.ceil(fill_s), wait_s)


def _of(tenant_id: str, settings: Settings) -> dict[str, str | int]:
    return {
        "tenant": tenant_id,
        "queued_jobs": settings.quota_queued_jobs,
        "stored_bytes": settings.quota_stored_bytes,
        "posts_per_minute": settings.quota_posts_per_minute,
        "tokens_per_day": settings.quota_tokens_per_day,
    }
