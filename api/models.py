"""/v1/models: what the caller may name as `model`, in OpenAI's form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel
from sqlalchemy.orm import Session as OrmSession

from api.deps import Caller, Session
from registry import adapters, base_models
from registry.errors import ModelNotFound

router = APIRouter(tags=["models"])


class ModelView(BaseModel):
    """A name for `model`. `created` is in unix seconds; `base_model` is its own id for a base."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    base_model: str


class ModelList(BaseModel):
    """All of them: this list has no pages."""

    object: Literal["list"] = "list"
    data: list[ModelView]


@router.get("/models")
def list_models(session: Session, caller: Caller) -> ModelList:
    """Base models, your active adapters, and every version of yours that can be asked for as `name@version`."""
    return ModelList(data=list(_models(session, caller.tenant_id)))


@router.get("/models/{model}")
def get_model(session: Session, caller: Caller, model: str) -> ModelView:
    """One of them."""
    for view in _models(session, caller.tenant_id):
        if view.id == model:
            return view
    raise ModelNotFound("This model does not exist for you; GET /v1/models lists those that do.", param="model")


def _models(session: OrmSession, tenant_id: str) -> Iterator[ModelView]:
    for base in base_models.all_bases(session):
        created = int(base.created_at.timestamp())
        yield ModelView(id=base.name, created=created, owned_by="lorry", base_model=base.name)
    for row in adapters.of_tenant(session, tenant_id):
        if row.state == "ready":
            names = [row.name] * row.is_active + [f"{row.name}@{row.version}"]
            created = int(row.created_at.timestamp())
            for name in names:
                yield ModelView(id=name, created=created, owned_by=tenant_id, base_model=row.base_model)
