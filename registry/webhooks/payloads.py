"""What a delivery says, built from the rows at the moment of sending, and its signature (Standard Webhooks).

This is where a tenant's text leaves: into the signed body for that tenant's own receiver, and nowhere else.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session
from standardwebhooks.webhooks import Webhook

from registry import ids, jobs
from registry.errors import NotFound
from registry.models import Batch, Job, WebhookEndpoint
from registry.secrets import SecretBox
from registry.shapes import job_view
from registry.webhooks import endpoints, event_ids
from registry.webhooks.event_types import RESULTS
from registry.webhooks.outbox import Claimed

MAX_FULL_BYTES: Final = 256 * 1024
"""A job's event that is larger goes out thin, with a link."""
MAX_LINE_BYTES: Final = 900_000
"""A line that is larger has its link instead of its output."""
_NOBODY: Final = uuid.UUID(int=0)


def _user_agent() -> str:
    try:
        return f"Lorry-Webhooks/{version('lorry')}"
    except PackageNotFoundError:  # run from a clone that nobody installed
        return "Lorry-Webhooks/0"


USER_AGENT: Final = _user_agent()


@dataclass(frozen=True, slots=True)
class Message:
    """A signed request, ready to be posted."""

    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def build(session: Session, box: SecretBox, claimed: Claimed) -> Message | None:
    """The message of a claimed delivery. None: its endpoint is disabled or gone.

    Raises ConfigurationError when the endpoint's secret cannot be opened.
    """
    row = session.execute(
        select(WebhookEndpoint, func.clock_timestamp().label("now")).where(WebhookEndpoint.id == claimed.endpoint_id)
    ).one_or_none()
    if row is None or row.WebhookEndpoint.disabled_at is not None:
        return None
    endpoint: WebhookEndpoint = row.WebhookEndpoint
    body = _body(session, claimed, full=endpoint.payload == "full")
    return Message(claimed.url or endpoint.url or "", _headers(box, endpoint, claimed, body, row.now), body)


def _headers(box: SecretBox, endpoint: WebhookEndpoint, claimed: Claimed, body: bytes, now: datetime) -> dict[str, str]:
    sealed = [endpoint.secret]
    if endpoint.old_secret is not None and endpoint.old_secret_until is not None and endpoint.old_secret_until > now:
        sealed.append(endpoint.old_secret)
    event_id, at, text = event_ids.to_wire(claimed.id), now.astimezone(UTC), body.decode()
    owner = endpoints.owner(endpoint.id)
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": event_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(box.open(secret, owner)).sign(event_id, at, text) for secret in sealed),
        "webhook-attempt": str(claimed.attempts),
    }


def _body(session: Session, claimed: Claimed, *, full: bool) -> bytes:
    if claimed.subject is None:
        return _event(claimed, _sample(claimed.type))
    if claimed.type == RESULTS:
        return _event(claimed, _chunk(session, claimed))
    if claimed.type.startswith("batch."):
        return _event(claimed, _batch(session, claimed, claimed.subject))
    if full:
        whole = _event(claimed, _job(session, claimed, claimed.subject))
        if len(whole) <= MAX_FULL_BYTES:
            return whole
    return _event(claimed, _thin_job(claimed.subject, claimed.type.partition(".")[2]))


def _event(claimed: Claimed, data: dict[str, Any]) -> bytes:
    """The envelope: OpenAI's `created_at` in seconds, Standard Webhooks' `timestamp` in ISO 8601, both of the event."""
    event = {
        "id": event_ids.to_wire(claimed.id),
        "object": "event",
        "type": claimed.type,
        "created_at": int(claimed.created_at.timestamp()),
        "timestamp": claimed.created_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": data,
    }
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()


def _job(session: Session, claimed: Claimed, job_id: uuid.UUID) -> dict[str, Any]:
    """The job as GET shows it; thin when it has been deleted since."""
    try:
        return job_view(jobs.get(session, claimed.tenant_id, job_id)).model_dump(mode="json")
    except NotFound:
        return _thin_job(job_id, claimed.type.partition(".")[2])


def _thin_job(job_id: uuid.UUID, status: str) -> dict[str, Any]:
    wire_id = ids.to_wire("job", job_id)
    return {"id": wire_id, "object": "job", "status": status, "links": {"self": f"/v1/jobs/{wire_id}"}}


def _batch(session: Session, claimed: Claimed, batch_id: uuid.UUID) -> dict[str, Any]:
    wire_id = ids.to_wire("batch", batch_id)
    data: dict[str, Any] = {
        "id": wire_id,
        "object": "batch",
        "status": claimed.type.partition(".")[2],
        "links": {"self": f"/v1/batches/{wire_id}", "results": f"/v1/batches/{wire_id}/results"},
    }
    totals = _totals(session, claimed, batch_id)
    return data if totals is None else data | {"request_counts": totals}


def _totals(session: Session, claimed: Claimed, batch_id: uuid.UUID) -> dict[str, int] | None:
    """How many lines ended how; `completed` is OpenAI's word for succeeded. None when the batch has been deleted."""
    row = session.execute(
        select(Batch.total, Batch.succeeded.label("completed"), Batch.failed, Batch.cancelled, Batch.expired).where(
            Batch.tenant_id == claimed.tenant_id, Batch.id == batch_id
        )
    ).one_or_none()
    return None if row is None else dict(row._mapping)


def _chunk(session: Session, claimed: Claimed) -> dict[str, Any]:
    """Finished lines, each the job as GET shows it and its line's number; the last chunk has the batch's totals."""
    assert claimed.subject is not None
    wire_id = ids.to_wire("batch", claimed.subject)
    data: dict[str, Any] = {
        "id": wire_id,
        "object": "batch.results",
        "chunk": claimed.chunk_no,
        "last": claimed.is_last,
        "lines": _lines(session, claimed, claimed.subject) if claimed.lines else [],
        "links": {"self": f"/v1/batches/{wire_id}", "results": f"/v1/batches/{wire_id}/results"},
    }
    if claimed.is_last:
        data |= {"chunks": claimed.chunk_no, "request_counts": _totals(session, claimed, claimed.subject)}
    return data


def _lines(session: Session, claimed: Claimed, batch_id: uuid.UUID) -> list[dict[str, Any]]:
    chosen = Job.batch_id == batch_id, Job.line_no.in_(claimed.lines or [])
    rows = session.execute(jobs.select_views(claimed.tenant_id).add_columns(Job.line_no).where(*chosen))
    found = {row.line_no: _line(row) for row in rows}
    return [found[number] for number in claimed.lines or [] if number in found]


def _line(row: Any) -> dict[str, Any]:
    view = {"line": row.line_no, **job_view(row).model_dump(mode="json")}
    if len(json.dumps(view, ensure_ascii=False).encode()) > MAX_LINE_BYTES:
        view |= {"output": None, "links": {"self": f"/v1/jobs/{view['id']}"}}
    return view


def _sample(event_type: str) -> dict[str, Any]:
    """What a test event is about: a job or batch that nobody has."""
    kind, _, status = event_type.partition(".")
    return {"id": ids.to_wire(kind, _NOBODY), "object": kind, "status": status, "sample": True}
