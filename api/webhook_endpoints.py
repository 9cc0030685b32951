"""/v1/webhook_endpoints: who is told when jobs and batches end, in the shapes of OpenAI's client."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from api.body import documented, json_body
from api.deps import Caller, Session, Shared
from api.idempotency import Idempotent
from api.lists import Page
from api.webhook_shapes import (
    EndpointCreate,
    EndpointDeleted,
    EndpointUpdate,
    EndpointView,
    EndpointWithSecret,
    EventTypeList,
    SecretRotation,
    endpoint_uuid,
    endpoint_view,
    endpoint_with_secret,
)
from registry import ids
from registry.errors import InvalidField, NotFound
from registry.webhooks import endpoints, targets
from registry.webhooks.endpoints import Wishes
from registry.webhooks.event_types import EVENT_TYPES

router = APIRouter(tags=["webhooks"])


@router.get("/webhook_event_types")
def list_event_types() -> EventTypeList:
    """Everything that an endpoint can subscribe to."""
    return EventTypeList(data=list(EVENT_TYPES))


@router.post("/webhook_endpoints", openapi_extra=documented(EndpointCreate))
def create_endpoint(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    request: Annotated[EndpointCreate, Depends(json_body(EndpointCreate))],
) -> EndpointWithSecret:
    """A receiver for events from now on. Keep `signing_secret`: it is not shown again."""
    targets.check_at_intake(services.webhook_rules, request.url, param="url")
    wishes = Wishes(request.name, request.url, request.event_types, request.payload, request.deliver)
    with once.transaction() as session:
        row, secret = endpoints.create(session, services.secret_box, caller.tenant_id, wishes)
        view = endpoint_with_secret(row, secret)
        once.keep(session, view, is_secret=True)
    return view


@router.get("/webhook_endpoints")
def list_endpoints(
    session: Session,
    caller: Caller,
    after: Annotated[str | None, Query(description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Page[EndpointView]:
    """Your endpoints, newest first."""
    try:
        cursor = ids.from_wire("we", after) if after is not None else None
        rows = endpoints.page(session, caller.tenant_id, after=cursor, limit=limit)
    except NotFound:
        raise InvalidField("`after` is not the id of one of your webhook endpoints.", param="after") from None
    views = [endpoint_view(row) for row in rows[:limit]]
    return Page.of(views, [view.id for view in views], has_more=len(rows) > limit)


@router.get("/webhook_endpoints/{endpoint_id}")
def get_endpoint(session: Session, caller: Caller, endpoint_id: str) -> EndpointView:
    """One endpoint, with the reason when it was disabled."""
    return endpoint_view(endpoints.get(session, caller.tenant_id, endpoint_uuid(endpoint_id)))


@router.post("/webhook_endpoints/{endpoint_id}", openapi_extra=documented(EndpointUpdate))
def update_endpoint(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    endpoint_id: str,
    request: Annotated[EndpointUpdate, Depends(json_body(EndpointUpdate))],
) -> EndpointView:
    """Change some of it, disable it, or enable it again."""
    wanted = endpoint_uuid(endpoint_id)
    if request.url is not None:
        targets.check_at_intake(services.webhook_rules, request.url, param="url")
    with once.transaction() as session:
        row = endpoints.change(session, caller.tenant_id, wanted, _changes(request))
        if not row.event_types and row.deliver == "events" and row.kind == "registered":
            raise InvalidField("An endpoint without event_types needs deliver to be results.", param="event_types")
        if request.status == "disabled":
            endpoints.disable(session, caller.tenant_id, wanted, "by_tenant")
        elif request.status == "enabled":
            endpoints.enable(session, caller.tenant_id, wanted)
        session.refresh(row)
        view = endpoint_view(row)
        once.keep(session, view)
    return view


@router.delete("/webhook_endpoints/{endpoint_id}")
def delete_endpoint(session: Session, caller: Caller, endpoint_id: str) -> EndpointDeleted:
    """Remove an endpoint together with its deliveries, also those that wait."""
    endpoints.remove(session, caller.tenant_id, endpoint_uuid(endpoint_id))
    return EndpointDeleted(id=endpoint_id)


@router.post("/webhook_endpoints/{endpoint_id}/rotate_secret", openapi_extra=documented(SecretRotation))
def rotate_secret(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    endpoint_id: str,
    request: Annotated[SecretRotation, Depends(json_body(SecretRotation))],
) -> EndpointWithSecret:
    """A new secret; on request deliveries are signed with the old one as well, for 24 hours."""
    wanted = endpoint_uuid(endpoint_id)
    with once.transaction() as session:
        keep = request.keep_old_secret_active_for_24_hours
        row, secret = endpoints.rotate(session, services.secret_box, caller.tenant_id, wanted, keep_old=keep)
        view = endpoint_with_secret(row, secret)
        once.keep(session, view, is_secret=True)
    return view


def _changes(request: EndpointUpdate) -> dict[str, Any]:
    given = request.model_dump(exclude_none=True, exclude={"status"})
    if "event_types" in given:
        given["event_types"] = list(given["event_types"])
    return given
