"""/v1/webhook_endpoints/{id}: test, deliveries, redeliver. The API only writes rows; the io worker does the sending."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Depends, Query, Response
from sqlalchemy.orm import Session as OrmSession
from starlette.concurrency import run_in_threadpool

from api.body import body_or_first, documented
from api.deps import Caller, Session, Shared
from api.idempotency import REPLAYED, Idempotent, Once, Replayed
from api.lists import Page
from api.services import Services
from api.webhook_shapes import (
    DeliveryStatus,
    DeliveryView,
    EndpointTest,
    EndpointTestResult,
    Redelivery,
    delivery_view,
    endpoint_uuid,
)
from registry import wake
from registry.errors import Conflict, InvalidField, NotFound, WebhookTestFailed
from registry.keys import Caller as KnownCaller
from registry.models import WebhookEndpoint
from registry.validation import checked
from registry.webhooks import deliveries, endpoints, event_ids

router = APIRouter(tags=["webhooks"])

_TEST_S: Final = 20.0
"""An attempt's 15 s, and the way to the io worker."""
_LOOK_S: Final = 0.2
_Moment = Annotated[int, Query(ge=0, lt=2**33, description="Unix seconds.")]


@router.post("/webhook_endpoints/{endpoint_id}/test", openapi_extra=documented(EndpointTest))
async def test_endpoint(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    endpoint_id: str,
    request: Annotated[EndpointTest | Replayed, Depends(body_or_first(partial(checked, EndpointTest)))],
    response: Response,
) -> EndpointTestResult:
    """Send a sample event and say what the receiver answered. It is tried once and is in the delivery log."""
    view = await run_in_threadpool(_begin_test, services, caller, once, endpoint_id, request)
    if isinstance(request, Replayed):
        response.headers.update(REPLAYED)
    # Between two looks nothing is held: neither a thread nor a database connection.
    deadline_s = asyncio.get_running_loop().time() + _TEST_S
    while view.status in ("pending", "sending") and asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(_LOOK_S)
        view = await run_in_threadpool(_look, services, caller, endpoint_id, view.id)
    if view.last_code is None:
        raise WebhookTestFailed(
            f"The receiver gave no answer ({view.last_error or 'not sent yet'}); the delivery log has {view.id}."
        )
    return EndpointTestResult(webhook_endpoint_id=endpoint_id, event_type=view.event_type, status_code=view.last_code)


@router.get("/webhook_endpoints/{endpoint_id}/deliveries")
def list_deliveries(
    session: Session,
    caller: Caller,
    endpoint_id: str,
    after: Annotated[str | None, Query(description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    status: Annotated[DeliveryStatus | None, Query()] = None,
) -> Page[DeliveryView]:
    """What was sent, or is to be: newest first, kept for 30 days."""
    endpoint = _endpoint(session, caller, endpoint_id)
    try:
        cursor = event_ids.from_wire(after) if after is not None else None
        rows = deliveries.page(session, caller.tenant_id, endpoint.id, after=cursor, limit=limit, status=status)
    except NotFound:
        raise InvalidField("`after` is not the id of one of this endpoint's deliveries.", param="after") from None
    views = [delivery_view(row) for row in rows[:limit]]
    return Page.of(views, [view.id for view in views], has_more=len(rows) > limit)


@router.post("/webhook_endpoints/{endpoint_id}/deliveries/{delivery_id}/redeliver")
def redeliver(services: Shared, caller: Caller, once: Idempotent, endpoint_id: str, delivery_id: str) -> DeliveryView:
    """Send one delivery again, now, with the same `webhook-id`."""
    with once.transaction() as session:
        endpoint = _enabled(_endpoint(session, caller, endpoint_id))
        wanted = event_ids.from_wire(delivery_id)
        view = delivery_view(deliveries.redeliver(session, caller.tenant_id, endpoint.id, wanted))
        once.keep(session, view)
    services.waker.wake(wake.QUEUED)
    return view


@router.post("/webhook_endpoints/{endpoint_id}/redeliver")
def redeliver_range(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    endpoint_id: str,
    since: _Moment,
    until: _Moment | None = None,
    status: Annotated[Literal["exhausted", "all"], Query(description="`all` also repeats what arrived.")] = "exhausted",
) -> Redelivery:
    """Send again what was created in a time range, oldest first."""
    with once.transaction() as session:
        endpoint = _enabled(_endpoint(session, caller, endpoint_id))
        count = deliveries.replay(
            session,
            caller.tenant_id,
            endpoint.id,
            _moment(since),
            _moment(until) if until is not None else None,
            status,
        )
        answer = Redelivery(webhook_endpoint_id=endpoint_id, count=count)
        once.keep(session, answer)
    services.waker.wake(wake.QUEUED)
    return answer


def _begin_test(
    services: Services, caller: KnownCaller, once: Once, endpoint_id: str, wanted: EndpointTest | Replayed
) -> DeliveryView:
    if isinstance(wanted, Replayed):
        return DeliveryView.model_validate_json(wanted.body)
    with once.transaction() as session:
        endpoint = _enabled(_endpoint(session, caller, endpoint_id))
        if endpoint.kind == "inline":
            raise Conflict("This endpoint has no URL of its own: jobs and batches name theirs.")
        added = deliveries.add_test(session, endpoint, wanted.event_type)
        view = delivery_view(deliveries.get(session, caller.tenant_id, endpoint.id, added))
        once.keep(session, view)
    services.waker.wake(wake.QUEUED)
    return view


def _look(services: Services, caller: KnownCaller, endpoint_id: str, delivery_id: str) -> DeliveryView:
    with services.transaction(caller) as session:
        endpoint = _endpoint(session, caller, endpoint_id)
        return delivery_view(deliveries.get(session, caller.tenant_id, endpoint.id, event_ids.from_wire(delivery_id)))


def _endpoint(session: OrmSession, caller: KnownCaller, endpoint_id: str) -> WebhookEndpoint:
    return endpoints.get(session, caller.tenant_id, endpoint_uuid(endpoint_id))


def _enabled(endpoint: WebhookEndpoint) -> WebhookEndpoint:
    if endpoint.disabled_at is not None:
        raise Conflict("The webhook endpoint is disabled; enable it first.")
    return endpoint


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
