"""Adapter versions: numbered without gaps, one active per name, and only ever found by their own tenant."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import IntegrityError

from registry import adapter_files, adapters
from registry.db import Database
from registry.errors import AdapterUnavailable, BaseModelMismatch, Conflict, InvalidField, ModelNotFound, NotFound
from registry.models import Adapter
from tests.registry.adapter_corpus import BASE_NAME
from tests.world import World


def at_once(count: int, act: Callable[[int], object]) -> list[object]:
    """Run in `count` threads that begin together; results or errors."""
    gate = threading.Barrier(count)
    results: list[object] = []

    def run(number: int) -> None:
        gate.wait()
        try:
            results.append(act(number))
        except Exception as error:  # noqa: BLE001
            results.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def facts(world: World, make_adapter_dir: Callable[..., Path], tmp_path: Path) -> adapter_files.AdapterFacts:
    world.tenant()
    world.base()
    folder = make_adapter_dir(tmp_path / "one", world.base_dir)
    shapes = adapter_files.base_shapes(world.base_dir)
    return adapter_files.check(folder, base_shapes=shapes, base_names={BASE_NAME}, max_rank=8, max_bytes=2**30)


def active(db: Database) -> list[tuple[Any, ...]]:
    with db.transaction() as session:
        query = text("SELECT tenant_id, name, version FROM tenant_adapters WHERE is_active ORDER BY 1, 2, 3")
        return [tuple(row) for row in session.execute(query)]


def test_the_first_version_is_active_and_later_ones_wait(system_db: Database, world: World) -> None:
    versions = [world.adapter("acme", "tickets") for _ in range(3)]
    assert [(v.version, v.is_active) for v in versions] == [(1, True), (2, False), (3, False)]
    assert versions[0].activated_at is not None
    assert active(system_db) == [("acme", "tickets", 1)]


def test_a_tenant_registers_and_activates_under_the_apis_role(
    api_db: Database, facts: adapter_files.AdapterFacts, tmp_path: Path
) -> None:
    with api_db.transaction("acme") as session:
        first = adapters.register(session, "acme", "tickets", facts, tmp_path, "Tiny")
        adapters.register(session, "acme", "tickets", facts, tmp_path, "Tiny")
        assert first.is_active
        assert adapters.activate(session, "acme", "tickets", 2).is_active
    with api_db.transaction("acme") as session:
        assert [(a.version, a.is_active) for a in adapters.of_tenant(session, "acme")] == [(2, True), (1, False)]
        assert first.facts["target_modules"] == ["q_proj", "v_proj"]


def test_activation_moves_the_pointer_and_rolls_back(system_db: Database, world: World) -> None:
    for _ in range(3):
        world.adapter("acme", "tickets")
    world.adapter("acme", "notes")
    for version in (3, 2, 2):
        with system_db.transaction() as session:
            assert adapters.activate(session, "acme", "tickets", version).is_active
        assert active(system_db) == [("acme", "notes", 1), ("acme", "tickets", version)]


def test_a_missing_or_retired_version_cannot_be_activated(system_db: Database, world: World) -> None:
    world.adapter("acme", "tickets")
    retired = world.adapter("acme", "tickets")
    retire(system_db, retired)
    with system_db.transaction() as session:
        with pytest.raises(AdapterUnavailable, match="tickets@2 is retired"):
            adapters.activate(session, "acme", "tickets", 2)
        with pytest.raises(NotFound, match="tickets@9"):
            adapters.activate(session, "acme", "tickets", 9)
    assert active(system_db) == [("acme", "tickets", 1)]


def test_versions_registered_at_once_are_numbered_without_gaps(
    system_db: Database, facts: adapter_files.AdapterFacts, tmp_path: Path
) -> None:
    def register(_: int) -> int:
        with system_db.transaction() as session:
            return adapters.register(session, "acme", "tickets", facts, tmp_path, "Tiny").version

    assert sorted(at_once(8, register), key=str) == list(range(1, 9))
    assert active(system_db) == [("acme", "tickets", 1)]


def test_activations_at_once_leave_exactly_one_active(system_db: Database, world: World) -> None:
    for _ in range(4):
        world.adapter("acme", "tickets")

    def activate(number: int) -> int:
        with system_db.transaction() as session:
            return adapters.activate(session, "acme", "tickets", number % 4 + 1).version

    assert sorted(at_once(8, activate), key=str) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert len(active(system_db)) == 1


def test_the_database_itself_refuses_a_second_active_version(system_db: Database, world: World) -> None:
    world.adapter("acme", "tickets")
    world.adapter("acme", "tickets")

    def force(_: int) -> None:
        with system_db.transaction() as session:
            session.execute(text("UPDATE tenant_adapters SET is_active = true"))

    outcomes = at_once(3, force)
    assert all(isinstance(outcome, IntegrityError) for outcome in outcomes), outcomes
    assert "uq_tenant_adapters_active" in str(outcomes[0])
    assert active(system_db) == [("acme", "tickets", 1)]


def test_integer_ids_are_never_used_again_and_cannot_be_chosen(system_db: Database, world: World) -> None:
    first = world.adapter("acme", "a").adapter_id
    with system_db.transaction() as session:
        session.execute(text("DELETE FROM tenant_adapters"))
    second = world.adapter("globex", "b").adapter_id
    assert 0 < first < second < 2**31
    choose = text("UPDATE tenant_adapters SET adapter_id = :id")
    with pytest.raises(Exception, match="can only be updated to DEFAULT"), system_db.transaction() as session:
        session.execute(choose, {"id": first})


@pytest.mark.parametrize("name", ["Tickets", "a@1", "a/b", "", "티켓", "-a"])
def test_a_name_that_could_be_mistaken_is_refused(
    system_db: Database, facts: adapter_files.AdapterFacts, tmp_path: Path, name: str
) -> None:
    with system_db.transaction() as session, pytest.raises(InvalidField, match="1 to 64"):
        adapters.register(session, "acme", name, facts, tmp_path, "Tiny")


def test_no_adapter_is_called_like_a_base(
    system_db: Database, world: World, facts: adapter_files.AdapterFacts, tmp_path: Path
) -> None:
    world.base("other-base", aliases=("twin",))
    with system_db.transaction() as session, pytest.raises(Conflict, match="base model's name"):
        adapters.register(session, "acme", "other-base", facts, tmp_path, "Tiny")
    with system_db.transaction() as session, pytest.raises(Conflict, match="base model's name"):
        adapters.register(session, "acme", "twin", facts, tmp_path, "other-base")


def test_a_model_is_the_active_version_a_pinned_one_or_a_base(system_db: Database, world: World) -> None:
    for _ in range(2):
        world.adapter("acme", "tickets")
    with system_db.transaction() as session:
        adapters.activate(session, "acme", "tickets", 2)
        found = {model: adapters.resolve(session, "acme", model) for model in ("tickets", "tickets@1", "Tiny")}
    assert [found[m].adapter.version for m in ("tickets", "tickets@1")] == [2, 1]  # type: ignore[union-attr]
    assert found["Tiny"].adapter is None
    assert {(f.base_model, f.deployment, f.max_model_len) for f in found.values()} == {("Tiny", "Tiny", 512)}


@pytest.mark.parametrize(
    "model", ["notes", "tickets@2", "tickets@0", "tickets@01", "tickets@", "@1", "", "tiny", "a" * 500]
)
def test_missing_and_foreign_models_get_the_same_answer(system_db: Database, world: World, model: str) -> None:
    world.adapter("acme", "tickets")
    world.adapter("globex", "notes")
    with system_db.transaction() as session, pytest.raises(ModelNotFound) as caught:
        adapters.resolve(session, "acme", model)
    with system_db.transaction() as session, pytest.raises(ModelNotFound) as missing:
        adapters.resolve(session, "acme", "nothing-at-all")
    assert str(caught.value) == str(missing.value)


def test_the_same_name_means_each_tenants_own_adapter(system_db: Database, api_db: Database, world: World) -> None:
    mine, theirs = world.adapter("acme", "tickets"), world.adapter("globex", "tickets")
    for db in (system_db, api_db):
        for tenant, adapter in (("acme", mine), ("globex", theirs)):
            with db.transaction(tenant) as session:
                found = adapters.resolve(session, tenant, "tickets").adapter
            assert found is not None
            assert found.adapter_id == adapter.adapter_id


def test_a_retired_or_quarantined_version_is_said_to_be_so(system_db: Database, world: World) -> None:
    world.adapter("acme", "tickets")
    retire(system_db, world.adapter("acme", "tickets"), "quarantined")
    with system_db.transaction() as session, pytest.raises(AdapterUnavailable, match="quarantined"):
        adapters.resolve(session, "acme", "tickets@2")


def test_a_stated_base_must_be_the_adapters_by_name_or_alias(system_db: Database, world: World) -> None:
    world.adapter("acme", "tickets")
    world.base("Other")
    with system_db.transaction() as session:
        for stated in ("Tiny", BASE_NAME, None):
            assert adapters.resolve(session, "acme", "tickets", stated).base_model == "Tiny"
        for model in ("tickets", "Tiny"):
            with pytest.raises(BaseModelMismatch, match="base 'Tiny'"):
                adapters.resolve(session, "acme", model, "Other")


def test_an_adapter_above_the_own_deployments_rank_runs_in_a_rank_class(system_db: Database, world: World) -> None:
    world.base("Tiny", max_lora_rank=8)
    world.deployment("Tiny-r16", max_lora_rank=16, max_model_len=256)
    world.adapter("acme", "wide", rank=16)
    with system_db.transaction() as session:
        found = adapters.resolve(session, "acme", "wide")
    assert (found.deployment, found.max_model_len) == ("Tiny-r16", 256)


def test_the_engine_name_holds_all_that_makes_a_version_unlike_others() -> None:
    names = {
        adapters.engine_name(tenant, name, version, digest)
        for tenant in ("acme", "globex")
        for name in ("a", "b")
        for version in (1, 11)
        for digest in ("0" * 64, "1" * 64)
    }
    assert len(names) == 16
    assert adapters.engine_name("acme", "tickets", 3, "ab" * 32) == "acme/tickets@3#abababababababab"


def retire(db: Database, adapter: Adapter, state: str = "retired") -> None:
    change = update(Adapter).where(Adapter.adapter_id == adapter.adapter_id)
    with db.transaction() as session:
        session.execute(change.values(state=state, state_reason="x", is_active=False))
