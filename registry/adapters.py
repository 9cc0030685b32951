"""Adapter versions: register, activate, resolve. A version never changes; activation moves a pointer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from registry import base_models, deployments
from registry.adapter_files import AdapterFacts
from registry.errors import (
    AdapterUnavailable,
    BaseModelMismatch,
    Conflict,
    ModelNotFound,
    NotFound,
    PreconditionFailed,
)
from registry.ids import check_slug
from registry.models import Adapter, BaseModel

_MODEL = re.compile(r"(?P<name>[^@]{1,96})(?:@(?P<version>[1-9][0-9]{0,8}))?")


@dataclass(frozen=True, slots=True)
class Resolved:
    """What `model` names for one tenant: an adapter version of its own, or a base (`adapter` None)."""

    base_model: str
    deployment: str
    max_model_len: int
    adapter: Adapter | None


def register(
    session: Session,
    tenant_id: str,
    name: str,
    facts: AdapterFacts,
    path: Path,
    base: str,
    *,
    base_stated_by: str | None = None,
    active: bool | None = None,
) -> Adapter:
    """A new version of a tenant's adapter; `active` None makes it active only if it is the first. `base_stated_by`
    records who overruled the base name in the adapter's own config."""
    check_name(session, name, base)
    lock_name(session, tenant_id, name)
    newest = session.scalar(
        select(func.max(Adapter.version)).where(Adapter.tenant_id == tenant_id, Adapter.name == name)
    )
    row = Adapter(
        tenant_id=tenant_id,
        name=name,
        version=(newest or 0) + 1,
        path=str(path),
        rank=facts.rank,
        base_model=base,
        digest=facts.digest,
        size_bytes=facts.size_bytes,
        facts=_facts_json(facts),
        base_stated_by=base_stated_by,
    )
    session.add(row)
    session.flush()
    session.refresh(row)
    wanted = newest is None if active is None else active
    return activate(session, tenant_id, name, row.version) if wanted else row


def check_name(session: Session, name: str, base: str) -> None:
    """Raise InvalidField or Conflict unless a tenant may call an adapter of this base so."""
    check_slug(name, "adapter")
    if session.get(BaseModel, name) is not None or name in base_models.names_of(session, base):
        raise Conflict(f"{name!r} is a base model's name; call the adapter something else.", param="name")


def activate(
    session: Session, tenant_id: str, name: str, version: int, *, instead_of: Collection[int | None] | None = None
) -> Adapter:
    """Make this version the one that the bare name means. Rolling back is activating an older one.

    `instead_of`: the active versions (None: none is) with which the caller would go on, where it minds.
    Raises NotFound, AdapterUnavailable for a version that is quarantined or retired, PreconditionFailed.
    """
    lock_name(session, tenant_id, name)
    wanted = get(session, tenant_id, name, version)
    if wanted.state != "ready":
        raise AdapterUnavailable(f"{name}@{version} is {wanted.state} and cannot be activated.", param="version")
    mine = (Adapter.tenant_id == tenant_id, Adapter.name == name)
    if instead_of is not None and active_version(of_tenant(session, tenant_id, name)) not in instead_of:
        raise PreconditionFailed("Another version has become active meanwhile: look again, then decide.")
    session.execute(update(Adapter).where(*mine, Adapter.is_active).values(is_active=False))
    session.execute(
        update(Adapter)
        .where(*mine, Adapter.version == version, Adapter.state == "ready")
        .values(is_active=True, activated_at=func.now())
    )
    session.refresh(wanted)
    return wanted


def active_version(versions: Iterable[Adapter]) -> int | None:
    """The one that an adapter's bare name means."""
    return next((row.version for row in versions if row.is_active), None)


def get(session: Session, tenant_id: str, name: str, version: int) -> Adapter:
    """One version of this tenant's, or NotFound."""
    found = session.get(Adapter, (tenant_id, name, version))
    if found is None:
        raise NotFound(f"No adapter version {name}@{version}.", param="version")
    return found


def of_tenant(session: Session, tenant_id: str, name: str | None = None) -> Sequence[Adapter]:
    """A tenant's versions, by name, newest first."""
    query = select(Adapter).where(Adapter.tenant_id == tenant_id)
    if name is not None:
        query = query.where(Adapter.name == name)
    return session.scalars(query.order_by(Adapter.name, Adapter.version.desc())).all()


def resolve(session: Session, tenant_id: str, model: str, base_model: str | None = None) -> Resolved:
    """What `model` means for this tenant, and only for this tenant.

    Raises ModelNotFound (the same for missing and foreign), AdapterUnavailable, BaseModelMismatch.
    """
    adapter = _find_adapter(session, tenant_id, model)
    base = session.get(BaseModel, adapter.base_model if adapter else model)
    if base is None:
        raise ModelNotFound(
            "This model does not exist for you: name one of your adapters, an adapter@version, or a base model. "
            "GET /v1/models lists them.",
            param="model",
        )
    if adapter is not None and adapter.state != "ready":
        raise AdapterUnavailable(f"This adapter version is {adapter.state}; activate another one.", param="model")
    if base_model is not None and base_model not in base_models.names_of(session, base.name):
        raise BaseModelMismatch(f"The model belongs to base {base.name!r}, not to the base stated.", param="base_model")
    deployment = deployments.serving(session, base.name, adapter.rank if adapter else 1)
    return Resolved(base.name, deployment.name, deployment.max_model_len, adapter)


def engine_name(tenant_id: str, name: str, version: int, digest: str) -> str:
    """The name vLLM knows a version by. It keys caches by name, so the digest is part of it."""
    return f"{tenant_id}/{name}@{version}#{digest[:16]}"


def _find_adapter(session: Session, tenant_id: str, model: str) -> Adapter | None:
    match = _MODEL.fullmatch(model)
    if match is None:
        return None
    query = select(Adapter).where(Adapter.tenant_id == tenant_id, Adapter.name == match["name"])
    if match["version"]:
        return session.scalars(query.where(Adapter.version == int(match["version"]))).one_or_none()
    return session.scalars(query.where(Adapter.is_active)).one_or_none()


def lock_name(session: Session, tenant_id: str, name: str) -> None:
    """One change at a time per (tenant, name): versions are numbered and activated without races."""
    session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"), {"key": f"{tenant_id}/{name}"})


def _facts_json(facts: AdapterFacts) -> dict[str, object]:
    kept = asdict(facts)
    named = facts.base_model_name_or_path
    return {key: kept[key] for key in ("alpha", "target_modules", "dtype")} | {
        "left_behind": [_storable(name) for name in facts.left_behind],
        "base_model_name_or_path": None if named is None else _storable(named),
    }


def _storable(text: str) -> str:
    """File names and configs may hold what jsonb cannot: NUL, lone surrogates."""
    return text.replace("\0", "?").encode("utf-8", "replace").decode("utf-8")
