"""The way of a delivery: pending -> sent -> sending -> delivered, pending again, or exhausted. One guarded UPDATE each.

`sent` means that its id is in the queue, `sending` that a sender holds it under a fence. Limits on how many of one lane
or tenant are under way hold here, where the next ones are picked.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.webhooks.schedule import DISABLE_AFTER_S, Answer, Verdict

PER_LANE: Final = 4
PER_TENANT: Final = 16
_LOG_KEPT: Final = 12
"""Attempts in a delivery's log: below 1 kB."""

# Lanes are walked by the index, one probe each, so that a lane with a long backlog hides no other.
_PICK = text("""
WITH RECURSIVE lanes AS (
    (SELECT lane FROM webhook_deliveries WHERE state = 'pending' ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT d.lane FROM webhook_deliveries d WHERE d.state = 'pending' AND d.lane > lanes.lane
            ORDER BY d.lane LIMIT 1)
    FROM lanes WHERE lanes.lane IS NOT NULL
), flying AS MATERIALIZED (
    SELECT tenant_id, lane, count(*) AS n FROM webhook_deliveries WHERE state IN ('sent', 'sending') GROUP BY 1, 2
), next AS (
    SELECT due.id, due.tenant_id, due.nth, due.due_at
    FROM lanes CROSS JOIN LATERAL (
        SELECT d.id, d.tenant_id, d.due_at, row_number() OVER (ORDER BY d.due_at) AS nth
        FROM webhook_deliveries d WHERE d.state = 'pending' AND d.lane = lanes.lane AND d.due_at <= now()
        ORDER BY d.due_at LIMIT greatest(0, :per_lane - coalesce((SELECT n FROM flying f WHERE f.lane = lanes.lane), 0))
    ) AS due WHERE lanes.lane IS NOT NULL
), fair AS (
    SELECT id, due_at, nth, row_number() OVER (PARTITION BY tenant_id ORDER BY nth, due_at) AS of_tenant,
           coalesce((SELECT sum(n) FROM flying f WHERE f.tenant_id = next.tenant_id), 0) AS in_flight
    FROM next
), picked AS (
    SELECT id FROM fair WHERE of_tenant + in_flight <= :per_tenant ORDER BY of_tenant, due_at LIMIT :wanted
)
UPDATE webhook_deliveries d SET state = 'sent', sent_at = clock_timestamp()
FROM picked WHERE d.id = picked.id AND d.state = 'pending' RETURNING d.id
""")

_CLAIM = """
UPDATE webhook_deliveries SET state = 'sending', fence = fence + 1, attempts = attempts + 1,
    claimed_at = clock_timestamp()
{which}
RETURNING id, tenant_id, endpoint_id, type, subject, url, lane, chunk_no, lines, is_last, fence, attempts, failures,
    created_at
"""
_CLAIM_SENT = text(_CLAIM.format(which="WHERE id = :id AND state = 'sent'"))
_CLAIM_NEXT = text(
    _CLAIM.format(
        which="""WHERE state = 'pending' AND id = (
            SELECT id FROM webhook_deliveries WHERE state = 'pending' AND lane = :lane AND due_at <= now()
            ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)"""
    )
)

# The endpoint's row is written only when it begins or ceases to fail: a busy endpoint is no hot row.
_SETTLE = text("""
WITH held AS (
    SELECT id, endpoint_id FROM webhook_deliveries WHERE id = :id AND fence = :fence AND state IN ('sending')
    FOR UPDATE
), endpoint AS (
    SELECT e.id, e.kind, e.disabled_at FROM webhook_endpoints e JOIN held ON held.endpoint_id = e.id
), turned AS (
    UPDATE webhook_endpoints e SET failing_since = CASE WHEN :accepted THEN NULL ELSE now() END
    FROM held WHERE e.id = held.endpoint_id AND (e.failing_since IS NULL) <> :accepted
)
UPDATE webhook_deliveries d SET
    state = CASE WHEN cast(:state AS text) = 'pending' AND endpoint.disabled_at IS NOT NULL THEN 'exhausted'
        ELSE :state END,
    failures = d.failures + (NOT :accepted)::int,
    due_at = clock_timestamp() + make_interval(secs => :wait_s),
    delivered_at = CASE WHEN :accepted THEN clock_timestamp() ELSE d.delivered_at END,
    claimed_at = NULL,
    log = (SELECT jsonb_agg(entry ORDER BY nth) FROM (
        SELECT entry, nth FROM jsonb_array_elements(d.log || (cast(:entry AS jsonb)
            || jsonb_build_object('at', extract(epoch FROM clock_timestamp())::bigint)))
            WITH ORDINALITY AS attempt (entry, nth)
        ORDER BY nth DESC LIMIT :kept) AS last)
FROM held JOIN endpoint ON endpoint.id = held.endpoint_id
WHERE d.id = held.id
RETURNING endpoint.kind
""")

_FAILED_LONG = text("""
SELECT failing_since < now() - make_interval(secs => :limit_s) FROM webhook_endpoints WHERE id = :id
""")

_TAKE_BACK = text("""
UPDATE webhook_deliveries SET state = 'pending', claimed_at = NULL, due_at = now()
WHERE state = 'sending' AND claimed_at < now() - make_interval(secs => :lease_s) RETURNING id
""")

_OVERDUE = text("""
SELECT id FROM webhook_deliveries WHERE state = 'sent' AND sent_at < now() - make_interval(secs => :age_s)
""")

_UNSENT = text("""
UPDATE webhook_deliveries SET state = 'pending' WHERE id = ANY(:ids) AND state = 'sent' RETURNING id
""")


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery that is this sender's now, under its fence."""

    id: uuid.UUID
    tenant_id: str
    endpoint_id: uuid.UUID
    type: str
    subject: uuid.UUID | None
    url: str | None = field(repr=False)
    lane: str = field(repr=False)
    chunk_no: int | None
    lines: list[int] | None
    is_last: bool
    fence: int
    attempts: int
    failures: int
    created_at: datetime


def pick(session: Session, wanted: int) -> Sequence[uuid.UUID]:
    """Mark due deliveries as sent, fairly by lane and tenant and within their limits; their ids."""
    limits = {"per_lane": PER_LANE, "per_tenant": PER_TENANT, "wanted": wanted}
    return session.scalars(_PICK, limits).all()


def claim(session: Session, delivery_id: uuid.UUID) -> Claimed | None:
    """Take a sent delivery. None: it is not to be had, its message is stale."""
    return _claimed(session.execute(_CLAIM_SENT, {"id": delivery_id}).mappings().one_or_none())


def claim_next(session: Session, lane: str) -> Claimed | None:
    """Take the next due one of a lane, in the place of one that is being settled in the same transaction."""
    return _claimed(session.execute(_CLAIM_NEXT, {"lane": lane}).mappings().one_or_none())


def settle(session: Session, claimed: Claimed, answer: Answer, verdict: Verdict) -> str | None:
    """Write how an attempt ended. The endpoint's kind, or None: the delivery was taken away or deleted meanwhile."""
    entry = {"code": answer.code, "error": answer.reason, "latency_ms": round(answer.latency_ms, 1)}
    values = {
        "id": claimed.id,
        "fence": claimed.fence,
        "state": verdict.state,
        "wait_s": verdict.wait_s,
        "accepted": answer.accepted,
        "entry": json.dumps(entry),
        "kept": _LOG_KEPT,
    }
    return session.execute(_SETTLE, values).scalar_one_or_none()


def failed_for_days(session: Session, endpoint_id: uuid.UUID) -> bool:
    """Whether nothing but failures has come from an endpoint for as long as that is borne."""
    return bool(session.scalar(_FAILED_LONG, {"id": endpoint_id, "limit_s": DISABLE_AFTER_S}))


def take_back(session: Session, lease_s: float) -> Sequence[uuid.UUID]:
    """Free what senders took and never settled: it is sent again under the same id."""
    return session.scalars(_TAKE_BACK, {"lease_s": lease_s}).all()


def overdue(session: Session, age_s: float) -> set[uuid.UUID]:
    """Deliveries sent this long ago that no sender has taken."""
    return set(session.scalars(_OVERDUE, {"age_s": age_s}))


def message_lost(session: Session, ids: Sequence[uuid.UUID]) -> Sequence[uuid.UUID]:
    """Let deliveries be sent again whose message the broker no longer has."""
    return session.scalars(_UNSENT, {"ids": list(ids)}).all()


def _claimed(row: Any) -> Claimed | None:
    return None if row is None else Claimed(**row)
