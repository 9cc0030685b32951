"""Taking in a folder, as `lorry adapters push` does: with the operator's role."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from registry import adapters
from registry.adapter_intake import intake
from registry.errors import AdapterRejected, Conflict, NotFound
from registry.models import Adapter
from tests.world import World


@pytest.fixture
def push(world: World) -> Callable[..., Adapter]:
    def pushed(folder: Path, name: str = "tickets", **options: Any) -> Adapter:
        return intake(world.db, world.store, "acme", name, folder, max_bytes=2**30, stated_by="operator", **options)

    world.tenant("acme")
    world.base("Tiny")
    return pushed


@pytest.fixture
def folder(make_adapter_dir: Callable[..., Path], tiny_base_dir: Path, tmp_path: Path) -> Path:
    return make_adapter_dir(tmp_path / "adapter", tiny_base_dir, 8, 0)


def test_the_base_is_the_one_that_the_config_names(push: Callable[..., Adapter], folder: Path) -> None:
    row = push(folder)
    assert (row.base_model, row.version, row.is_active, row.base_stated_by) == ("Tiny", 1, True, None)
    assert Path(row.path).is_dir()


def test_a_stated_base_is_recorded_with_who_stated_it(push: Callable[..., Adapter], folder: Path) -> None:
    rename(folder, "고객/모델\0")
    (folder / "README.md").write_text("left behind", encoding="utf-8")
    row = push(folder, base="Tiny")
    assert row.base_stated_by == "operator"
    assert row.facts["base_model_name_or_path"] == "고객/모델?"
    assert row.facts["left_behind"] == ["README.md"]


@pytest.mark.parametrize("named", ["other/base", "x\0", "", None, 7])
def test_a_base_that_nobody_registered_is_a_mismatch(push: Callable[..., Adapter], folder: Path, named: object) -> None:
    rename(folder, named)
    with pytest.raises(AdapterRejected) as caught:
        push(folder)
    assert caught.value.reason == "base_mismatch"


def rename(folder: Path, base: object) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), "base_model_name_or_path": base}), "utf-8")


def test_what_cannot_be_taken_in_is_refused_by_name(push: Callable[..., Adapter], folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        push(folder, base="nothing")
    with pytest.raises(AdapterRejected, match="no folder"):
        push(tmp_path / "nowhere")
    (folder / "adapter_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(AdapterRejected) as caught:
        push(folder)
    assert caught.value.reason == "config_invalid"


def test_a_name_that_is_taken_is_refused_before_anything_is_stored(
    push: Callable[..., Adapter], folder: Path, world: World
) -> None:
    world.base("small")
    before = sorted(world.store.root.rglob("*"))
    with pytest.raises(Conflict):
        push(folder, "small")
    assert sorted(world.store.root.rglob("*")) == before


def test_activation_can_be_asked_for_or_forgone(push: Callable[..., Adapter], folder: Path, world: World) -> None:
    assert push(folder, activate=False).is_active is False
    assert push(folder, activate=True).is_active is True
    assert push(folder).is_active is False
    with world.db.transaction() as session:
        versions = adapters.of_tenant(session, "acme", "tickets")
    assert [(row.version, row.is_active) for row in versions] == [(3, False), (2, True), (1, False)]
