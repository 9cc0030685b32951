"""Taking in an adapter folder: find its base, check it, keep its files, register the version.

`lorry adapters push` and `POST /v1/adapters` both end here. Reading gigabytes takes seconds, so the folder is checked
and stored between two transactions, never inside one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from registry import adapter_files, adapters, base_models, deployments, tenants
from registry.adapter_files import AdapterFacts
from registry.adapter_files.folder import read_config_bytes, survey
from registry.adapter_files.reasons import Findings, quoted, reject
from registry.adapter_files.strict_json import BadJsonError, parse_object
from registry.db import Database
from registry.errors import NotFound
from registry.models import Adapter
from registry.store import Store


@dataclass(frozen=True, slots=True)
class Target:
    """The base an adapter is measured against. `stated`: the caller named it, so the config's own word is not asked."""

    base: str
    path: Path
    names: frozenset[str]
    max_rank: int
    stated: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """A folder that was accepted for its target and lies in the store."""

    target: Target
    facts: AdapterFacts
    path: Path


def intake(
    database: Database,
    store: Store,
    tenant_id: str,
    name: str,
    folder: Path,
    *,
    max_bytes: int,
    base: str | None = None,
    stated_by: str,
    activate: bool | None = None,
) -> Adapter:
    """The folder as a new version of the tenant's adapter `name`, committed when this returns.

    `base` overrules the base named in the adapter's config; `stated_by` (a key or an operator) is then recorded.
    `activate` None activates a first version only. Raises NotFound (tenant, base), InvalidField, Conflict,
    AdapterRejected, Unavailable.
    """
    stored = check_and_store(database, store, tenant_id, name, folder, max_bytes=max_bytes, base=base)
    with database.transaction(tenant_id) as session:
        return register(session, tenant_id, name, stored, stated_by=stated_by, activate=activate)


def check_and_store(
    database: Database, store: Store, tenant_id: str, name: str, folder: Path, *, max_bytes: int, base: str | None
) -> Stored:
    """The first part of `intake`: everything but the version's row."""
    with database.transaction(tenant_id) as session:
        tenants.get(session, tenant_id)
        target = find_target(session, folder, base)
        adapters.check_name(session, name, target.base)
    facts = check(folder, target, max_bytes)
    return Stored(target, facts, store.put(folder, facts.digest))


def register(
    session: Session, tenant_id: str, name: str, stored: Stored, *, stated_by: str, activate: bool | None
) -> Adapter:
    """The second part of `intake`, in the caller's transaction."""
    overruled = (stored.facts.base_model_name_or_path or "").rstrip("/") not in stored.target.names
    return adapters.register(
        session,
        tenant_id,
        name,
        stored.facts,
        stored.path,
        stored.target.base,
        base_stated_by=stated_by if overruled else None,
        active=activate,
    )


def find_target(session: Session, folder: Path, base: str | None) -> Target:
    """What to measure the folder against: the base stated, else the one that the adapter's config names.

    Raises NotFound for a stated base, AdapterRejected (`base_mismatch` and what makes the config unreadable) else.
    """
    wanted = base if base is not None else _base_in_config(folder)
    try:
        model = base_models.get(session, wanted)
    except NotFound:
        if base is not None:
            raise
        message = f"The adapter says its base is {quoted(wanted)}, which is no name of a registered base."
        raise reject("base_mismatch", message) from None
    return Target(
        base=model.name,
        path=Path(model.path),
        names=base_models.names_of(session, model.name),
        max_rank=deployments.rank_ceiling(session, model.name),
        stated=base is not None,
    )


def check(folder: Path, target: Target, max_bytes: int) -> AdapterFacts:
    """Accept the folder for the target, or raise AdapterRejected."""
    return adapter_files.check(
        folder,
        base_shapes=adapter_files.base_shapes(target.path),
        base_names=target.names,
        max_rank=target.max_rank,
        max_bytes=max_bytes,
        base_stated=target.stated,
    )


def _base_in_config(folder: Path) -> str:
    findings = Findings()
    survey(folder, findings, max_bytes=2**63)
    if findings.kept:
        raise reject(findings.kept[0].reason, findings.kept[0].message)
    try:
        named = parse_object(read_config_bytes(folder / adapter_files.CONFIG_NAME)).get("base_model_name_or_path")
    except BadJsonError as error:
        raise reject("config_invalid", f"{adapter_files.CONFIG_NAME} cannot be read: {error}.") from None
    if not isinstance(named, str) or not named.isprintable():
        raise reject("base_mismatch", f"The adapter says its base is {quoted(named)}, which is no name of a base.")
    return named.rstrip("/")
