"""Base models: folders and templates that can serve, names and aliases that mean one thing each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from registry import base_models
from registry.db import Database
from registry.errors import Conflict, InvalidField, NotFound
from tests.tiny_base import make_tiny_base
from tests.world import World

TEMPLATE = base_models.DEFAULT_TEMPLATE


def add(db: Database, name: str, path: Path, *aliases: str, template: list[Any] | None = None) -> None:
    with db.transaction() as session:
        base_models.add(session, name, path, revision="r1", aliases=aliases, template=template or TEMPLATE)


def test_a_base_is_found_by_its_name_and_by_each_alias(system_db: Database, tiny_base_dir: Path) -> None:
    add(system_db, "Tiny", tiny_base_dir, "hub/tiny", "/models/tiny")
    with system_db.transaction() as session:
        for name in ("Tiny", "hub/tiny", "/models/tiny"):
            found = base_models.get(session, name)
            assert (found.name, found.path, found.revision) == ("Tiny", str(tiny_base_dir), "r1")
        assert base_models.names_of(session, "Tiny") == {"Tiny", "hub/tiny", "/models/tiny"}
        assert [base.name for base in base_models.all_bases(session)] == ["Tiny"]
        with pytest.raises(NotFound, match="lorry bases list"):
            base_models.get(session, "tiny")


def test_a_name_is_given_once(system_db: Database, tiny_base_dir: Path) -> None:
    add(system_db, "Tiny", tiny_base_dir)
    with pytest.raises(Conflict, match="registered already"):
        add(system_db, "Tiny", tiny_base_dir)


def test_an_alias_belongs_to_one_base(system_db: Database, tiny_base_dir: Path) -> None:
    add(system_db, "One", tiny_base_dir, "hub/x")
    with pytest.raises(Conflict, match="belongs to another base"):
        add(system_db, "Two", tiny_base_dir, "hub/x")
    with system_db.transaction() as session, pytest.raises(NotFound):
        base_models.get(session, "Two")


def test_no_alias_takes_the_name_of_another_base(system_db: Database, tiny_base_dir: Path) -> None:
    """Else `One` would suddenly mean `Two`."""
    add(system_db, "One", tiny_base_dir)
    with pytest.raises(Conflict, match="belongs to another base"):
        add(system_db, "Two", tiny_base_dir, "One")
    with system_db.transaction() as session:
        assert base_models.get(session, "One").name == "One"


def test_no_base_takes_the_alias_of_another_one(system_db: Database, tiny_base_dir: Path) -> None:
    add(system_db, "One", tiny_base_dir, "Llama")
    with pytest.raises(Conflict, match="'Llama'"):
        add(system_db, "Llama", tiny_base_dir)


def test_an_alias_given_twice_or_equal_to_the_name_is_no_contradiction(
    system_db: Database, tiny_base_dir: Path
) -> None:
    add(system_db, "Tiny", tiny_base_dir, "hub/tiny", "hub/tiny", "Tiny")
    with system_db.transaction() as session:
        assert base_models.get(session, "Tiny").name == "Tiny"
        assert base_models.names_of(session, "Tiny") == {"Tiny", "hub/tiny"}


def test_a_base_is_not_called_like_some_tenants_adapter(system_db: Database, world: World) -> None:
    world.adapter("acme", "tickets")
    with pytest.raises(Conflict, match="name of its own"):
        add(system_db, "tickets", world.base_dir)


@pytest.mark.parametrize("name", ["", "a b", "-x", "x/", "a" * 97, "모델", "a@1"])
def test_a_name_that_could_not_be_a_queue_is_refused(system_db: Database, tiny_base_dir: Path, name: str) -> None:
    with pytest.raises(InvalidField, match="1 to 96"):
        add(system_db, name, tiny_base_dir)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_part_is_refused_by_name(system_db: Database, tmp_path: Path, missing: str) -> None:
    folder = make_tiny_base(tmp_path / "base")
    (folder / missing).unlink()
    with pytest.raises(InvalidField, match="has no") as caught:
        add(system_db, "Tiny", folder)
    assert missing.rpartition(".")[2] in str(caught.value)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b""])
def test_a_config_that_is_no_json_is_refused(system_db: Database, tmp_path: Path, content: bytes) -> None:
    folder = make_tiny_base(tmp_path / "base")
    (folder / "config.json").write_bytes(content)
    with pytest.raises(InvalidField, match="not JSON"):
        add(system_db, "Tiny", folder)


@pytest.mark.parametrize(
    "template",
    [
        [{"role": "user", "content": "no place for it"}],
        [{"role": "user", "content": "{document} and {document}"}],
        [{"role": "system", "content": "{document}"}, {"role": "user", "content": "{document}"}],
        [{"role": "user"}],
        [{"role": "user", "content": "{document}", "name": "x"}],
        [{"role": "user", "content": ["{document}"]}],
        [{"role": 7, "content": "{document}"}],
        ["{document}"],
    ],
)
def test_a_template_has_the_document_exactly_once(
    system_db: Database, tiny_base_dir: Path, template: list[Any]
) -> None:
    with pytest.raises(InvalidField, match="exactly once"):
        add(system_db, "Tiny", tiny_base_dir, template=template)
