"""Tenants: made by the operator, found by id."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from registry.errors import Conflict, InvalidField, NotFound
from registry.ids import check_slug
from registry.models import Tenant


def create(session: Session, tenant_id: str, name: str, weight: float = 1.0) -> Tenant:
    """A new tenant. Raises Conflict for a taken id, InvalidField for one that is no slug or for a weight of 0."""
    check_slug(tenant_id, "tenant")
    if not 0 < weight <= 1000:
        raise InvalidField("A tenant's weight is a number above 0, at most 1000.", param="weight")
    made = session.execute(
        insert(Tenant)
        .values(id=tenant_id, name=name, weight=weight)
        .on_conflict_do_nothing(index_elements=[Tenant.id])
        .returning(Tenant)
    ).scalar_one_or_none()
    if made is None:
        raise Conflict(f"Tenant {tenant_id!r} exists already; choose another id.", param="tenant")
    return made


def get(session: Session, tenant_id: str) -> Tenant:
    """The tenant, or NotFound."""
    found = session.get(Tenant, tenant_id)
    if found is None:
        raise NotFound(f"No tenant {tenant_id!r}; `lorry tenants create {tenant_id}` makes it.", param="tenant")
    return found


def all_tenants(session: Session) -> Sequence[Tenant]:
    """Every tenant, by id."""
    return session.scalars(select(Tenant).order_by(Tenant.id)).all()
