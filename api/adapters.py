"""/v1/adapters: push a version, list versions, activate one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from api import conditions
from api.body import documented, json_body
from api.conditions import IfMatch
from api.deps import Caller, Session, Shared
from api.idempotency import Idempotent
from api.lists import Page
from api.upload import FORM_SCHEMA, Upload, receive_upload
from registry import adapter_intake, adapters, ids, quotas
from registry.errors import NotFound
from registry.models import Adapter
from registry.shapes import Strict

router = APIRouter(tags=["adapters"])


class AdapterView(BaseModel):
    """One version. `base_stated_by`: who overruled the base named in the adapter's own config, if anybody did."""

    id: str
    object: Literal["adapter"] = "adapter"
    name: str
    version: int
    base_model: str
    rank: int
    is_active: bool
    state: str
    state_reason: str | None
    digest: str
    size_bytes: int
    facts: dict[str, Any]
    base_stated_by: str | None
    created_at: int
    activated_at: int | None


class Activation(Strict):
    """Which version the bare name shall mean."""

    version: int = Field(ge=1, lt=2**31)


@router.post("/adapters", status_code=201, openapi_extra={"requestBody": FORM_SCHEMA})
def push_adapter(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    upload: Annotated[Upload, Depends(receive_upload, scope="function")],
    response: Response,
) -> AdapterView:
    """Check and keep an adapter as PEFT saves it: two files, sent as a form. The first version becomes active."""
    form = upload.form
    try:
        stored = adapter_intake.check_and_store(
            services.database,
            services.store,
            caller.tenant_id,
            form.name,
            upload.folder,
            max_bytes=services.settings.max_adapter_bytes,
            base=form.base_model,
        )
    except NotFound:
        # The registry's own sentence is for operators and repeats the name.
        raise NotFound("There is no such base model; GET /v1/models lists them.", param="base_model") from None
    location = f"/v1/adapters/{form.name}"
    with once.transaction() as session:
        row = adapter_intake.register(
            session, caller.tenant_id, form.name, stored, stated_by=f"key:{caller.key_id}", activate=form.activate
        )
        quotas.reserve_bytes(session, caller.tenant_id, services.settings)
        once.keep(session, _view(row), status=201, location=location)
    response.headers["location"] = location
    return _view(row)


@router.get("/adapters")
def list_adapters(session: Session, caller: Caller) -> Page[AdapterView]:
    """Every version of yours, by name, newest first."""
    views = [_view(row) for row in adapters.of_tenant(session, caller.tenant_id)]
    return Page.of(views, [view.id for view in views])


@router.get("/adapters/{adapter}")
def get_adapter(session: Session, caller: Caller, adapter: str, response: Response) -> Page[AdapterView]:
    """The versions of one adapter, newest first. The ETag changes with the active one."""
    rows = adapters.of_tenant(session, caller.tenant_id, _known_form(adapter))
    if not rows:
        raise _no_such_adapter()
    response.headers["etag"] = conditions.etag(adapters.active_version(rows))
    views = [_view(row) for row in rows]
    return Page.of(views, [view.id for view in views])


@router.post("/adapters/{adapter}/activate", openapi_extra=documented(Activation))
def activate_adapter(
    caller: Caller,
    once: Idempotent,
    adapter: str,
    wanted: Annotated[Activation, Depends(json_body(Activation))],
    response: Response,
    if_match: IfMatch = None,
) -> AdapterView:
    """Let the bare name mean this version; jobs that name a version are not touched. Also the way back."""
    name, expected = _known_form(adapter), conditions.expected(if_match)
    response.headers["etag"] = conditions.etag(wanted.version)
    with once.transaction() as session:
        try:
            row = adapters.activate(session, caller.tenant_id, name, wanted.version, instead_of=expected)
        except NotFound:
            raise _no_such_adapter() from None
        view = _view(row)
        once.keep(session, view)
    return view


def _known_form(name: str) -> str:
    """A name that is no slug names nothing, and might be text that the database cannot even compare."""
    if not ids.SLUG.fullmatch(name):
        raise _no_such_adapter()
    return name


def _no_such_adapter() -> NotFound:
    return NotFound("No such adapter: GET /v1/adapters lists yours.")


def _view(row: Adapter) -> AdapterView:
    return AdapterView(
        id=f"{row.name}@{row.version}",
        name=row.name,
        version=row.version,
        base_model=row.base_model,
        rank=row.rank,
        is_active=row.is_active,
        state=row.state,
        state_reason=row.state_reason,
        digest=row.digest,
        size_bytes=row.size_bytes,
        facts=row.facts,
        base_stated_by=row.base_stated_by,
        created_at=int(row.created_at.timestamp()),
        activated_at=int(row.activated_at.timestamp()) if row.activated_at else None,
    )
