"""Base models and the names under which adapters were trained for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from registry.errors import Conflict, InvalidField, NotFound
from registry.ids import check_base_name
from registry.models import Adapter, BaseAlias, BaseModel

DEFAULT_TEMPLATE: list[dict[str, str]] = [
    {"role": "user", "content": "Summarize the following document:\n\n{document}"}
]


def add(
    session: Session, name: str, path: Path, *, revision: str | None, aliases: Iterable[str], template: list[Any]
) -> BaseModel:
    """Register a base. Raises InvalidField for a folder or template that cannot serve, Conflict for a taken name."""
    check_base_name(name)
    check_folder(path)
    check_template(template)
    if session.scalar(select(Adapter.name).where(Adapter.name == name).limit(1)):
        raise Conflict(f"A tenant's adapter is called {name!r}; a base needs a name of its own.", param="name")
    if (alias := session.get(BaseAlias, name)) is not None:
        raise Conflict(f"{name!r} is an alias of base {alias.base_model!r}; choose another name.", param="name")
    made = session.execute(
        insert(BaseModel)
        .values(name=name, path=str(path.absolute()), revision=revision, template=template)
        .on_conflict_do_nothing()
        .returning(BaseModel)
    ).scalar_one_or_none()
    if made is None:
        raise Conflict(f"Base model {name!r} is registered already.", param="name")
    for other_name in sorted(set(aliases) - {name}):
        _add_alias(session, other_name, name)
    return made


def get(session: Session, name: str) -> BaseModel:
    """The base of this name or alias, or NotFound."""
    alias = session.get(BaseAlias, name)
    found = session.get(BaseModel, alias.base_model if alias else name)
    if found is None:
        raise NotFound(f"No base model {name!r}; `lorry bases list` shows the registered ones.", param="base_model")
    return found


def names_of(session: Session, base: str) -> frozenset[str]:
    """The base's name and all its aliases."""
    return frozenset([base, *session.scalars(select(BaseAlias.alias).where(BaseAlias.base_model == base))])


def all_bases(session: Session) -> Sequence[BaseModel]:
    """Every base, by name."""
    return session.scalars(select(BaseModel).order_by(BaseModel.name)).all()


def check_folder(path: Path) -> None:
    """A base is a local folder as `save_pretrained` leaves it: config, tokenizer, safetensors."""
    for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(path.glob(pattern)):
            raise InvalidField(f"The model folder has no {pattern}: save the model whole.", param="path")
    try:
        json.loads((path / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidField("The model folder's config.json is not JSON.", param="path") from error


def check_template(template: list[Any]) -> None:
    """A template is a list of chat messages, `{document}` in exactly one of them."""
    good = all(isinstance(m, dict) and m.keys() == {"role", "content"} for m in template)
    good = good and all(isinstance(m["role"], str) and isinstance(m["content"], str) for m in template)
    if not good or sum(m["content"].count("{document}") for m in template) != 1:
        raise InvalidField(
            'A template is a list of {"role", "content"} messages with "{document}" exactly once.', param="template"
        )


def _add_alias(session: Session, alias: str, base: str) -> None:
    """One name means one base: neither another base's alias nor another base's own name."""
    taken = session.get(BaseModel, alias) is not None
    insertion = insert(BaseAlias).values(alias=alias, base_model=base).on_conflict_do_nothing()
    if taken or session.execute(insertion.returning(BaseAlias.alias)).one_or_none() is None:
        raise Conflict(f"The alias {alias!r} belongs to another base.", param="alias")
