"""What goes over the wire about webhook endpoints and deliveries: OpenAI's shapes, and what Lorry adds to them."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from registry import ids
from registry.errors import NotFound
from registry.models import WebhookDelivery, WebhookEndpoint
from registry.shapes import ShortText, Strict
from registry.webhooks import event_ids
from registry.webhooks.event_types import EventType

Url = Annotated[str, Field(min_length=1, max_length=2048)]
EventTypes = Annotated[tuple[EventType, ...], Field(max_length=32, strict=False)]
Payload = Literal["full", "thin"]
Deliver = Literal["events", "results"]
DeliveryStatus = Literal["pending", "sending", "delivered", "exhausted"]


class EndpointCreate(Strict):
    """A receiver. `payload` thin leaves texts out; `deliver` results adds batches' finished lines in chunks."""

    name: ShortText
    url: Url
    event_types: EventTypes = ()
    payload: Payload = "full"
    deliver: Deliver = "events"

    @model_validator(mode="after")
    def _wants_something(self) -> EndpointCreate:
        if not self.event_types and self.deliver == "events":
            raise ValueError("event_types is empty: name what to hear of, or set deliver to results")
        return self


class EndpointUpdate(Strict):
    """What to change; fields that are left out stay. `status` enabled clears why it was disabled."""

    name: ShortText | None = None
    url: Url | None = None
    event_types: EventTypes | None = None
    payload: Payload | None = None
    deliver: Deliver | None = None
    status: Literal["enabled", "disabled"] | None = None


class SecretRotation(Strict):
    """Whether deliveries carry the old secret's signature too, for 24 hours."""

    keep_old_secret_active_for_24_hours: bool = False


class EndpointTest(Strict):
    """Which event to send a sample of."""

    event_type: EventType


class EndpointView(BaseModel):
    """An endpoint. `kind` inline: the one that signs for every `webhook_url` of jobs and batches; it has no URL."""

    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    name: str
    url: str
    event_types: list[str]
    created_at: int
    updated_at: int
    signing_secret_hint: str
    kind: Literal["registered", "inline"]
    payload: Payload
    deliver: Deliver
    status: Literal["enabled", "disabled"]
    disabled_reason: Literal["by_tenant", "gone", "failing"] | None
    failing_since: int | None


class EndpointWithSecret(EndpointView):
    """At creation and rotation only: the secret is not shown again."""

    signing_secret: str


class EndpointDeleted(BaseModel):
    """What is left of an endpoint."""

    id: str
    object: Literal["webhook_endpoint.deleted"] = "webhook_endpoint.deleted"
    deleted: Literal[True] = True


class EndpointTestResult(BaseModel):
    """The receiver answered, with this status."""

    object: Literal["webhook_endpoint.test"] = "webhook_endpoint.test"
    webhook_endpoint_id: str
    event_type: str
    status_code: int
    success: Literal[True] = True


class EventTypeList(BaseModel):
    """What endpoints can subscribe to."""

    object: Literal["list"] = "list"
    data: list[str]


class Attempt(BaseModel):
    """One attempt: the receiver's status code, or a fixed reason why there was none."""

    at: int
    code: int | None
    error: str | None
    latency_ms: float


class DeliveryView(BaseModel):
    """One event for one endpoint; its id is the `webhook-id`. The last attempts, oldest first; never a text."""

    id: str
    object: Literal["webhook_delivery"] = "webhook_delivery"
    event_type: str
    subject_id: str | None
    chunk: int | None
    status: DeliveryStatus
    attempts: int
    next_attempt_at: int | None
    created_at: int
    delivered_at: int | None
    last_code: int | None
    last_error: str | None
    latency_ms: float | None
    log: list[Attempt]


class Redelivery(BaseModel):
    """How many deliveries are sent again; 10,000 at most: ask again with a later `since` for more."""

    object: Literal["webhook_endpoint.redelivery"] = "webhook_endpoint.redelivery"
    webhook_endpoint_id: str
    count: int


def endpoint_view(row: WebhookEndpoint) -> EndpointView:
    """The view of an endpoint's row."""
    return EndpointView.model_validate(_endpoint(row))


def endpoint_with_secret(row: WebhookEndpoint, secret: str) -> EndpointWithSecret:
    """The view that is given once."""
    return EndpointWithSecret.model_validate(_endpoint(row) | {"signing_secret": secret})


def delivery_view(row: WebhookDelivery) -> DeliveryView:
    """The view of a delivery's row."""
    last = row.log[-1] if row.log else {}
    kind = row.type.partition(".")[0]
    return DeliveryView(
        id=event_ids.to_wire(row.id),
        event_type=row.type,
        subject_id=ids.to_wire(kind, row.subject) if row.subject else None,
        chunk=row.chunk_no,
        status="sending" if row.state == "sent" else row.state,
        attempts=row.attempts,
        next_attempt_at=int(row.due_at.timestamp()) if row.state == "pending" else None,
        created_at=int(row.created_at.timestamp()),
        delivered_at=int(row.delivered_at.timestamp()) if row.delivered_at else None,
        last_code=last.get("code"),
        last_error=last.get("error"),
        latency_ms=last.get("latency_ms"),
        log=[Attempt.model_validate(entry) for entry in row.log],
    )


def endpoint_uuid(endpoint_id: str) -> uuid.UUID:
    """The uuid of `we_…`. Raises NotFound in the words of a missing one."""
    try:
        return ids.from_wire("we", endpoint_id)
    except NotFound:
        raise NotFound("No such webhook endpoint: check the id.") from None


def _endpoint(row: WebhookEndpoint) -> dict[str, Any]:
    return {
        "id": ids.to_wire("we", row.id),
        "name": row.name,
        "url": row.url or "",
        "event_types": row.event_types,
        "created_at": int(row.created_at.timestamp()),
        "updated_at": int(row.updated_at.timestamp()),
        "signing_secret_hint": row.secret_hint,
        "kind": row.kind,
        "payload": row.payload,
        "deliver": row.deliver,
        "status": "enabled" if row.disabled_at is None else "disabled",
        "disabled_reason": row.disabled_reason,
        "failing_since": int(row.failing_since.timestamp()) if row.failing_since else None,
    }
