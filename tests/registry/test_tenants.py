"""Tenants: made by the operator, found by id."""

from __future__ import annotations

import pytest

from registry import tenants
from registry.db import Database
from registry.errors import Conflict, InvalidField, NotFound
from tests.world import World


def test_a_tenant_is_found_by_its_id_with_its_weight(system_db: Database) -> None:
    with system_db.transaction() as session:
        tenants.create(session, "acme", "아크메", 2.5)
    with system_db.transaction() as session:
        found = tenants.get(session, "acme")
    assert (found.id, found.name, found.weight) == ("acme", "아크메", 2.5)


def test_a_taken_id_is_a_conflict_that_names_it(system_db: Database, world: World) -> None:
    world.tenant("acme")
    with system_db.transaction() as session, pytest.raises(Conflict, match="'acme' exists already"):
        tenants.create(session, "acme", "Other")


@pytest.mark.parametrize("bad", ["", "Acme", "a b", "-acme", "acme-", "a/b", "a" * 65, "고객", "acme\n"])
def test_an_id_that_is_no_slug_is_refused(system_db: Database, bad: str) -> None:
    with system_db.transaction() as session, pytest.raises(InvalidField, match="1 to 64"):
        tenants.create(session, bad, "x")


@pytest.mark.parametrize("weight", [0, -1, 1000.5, float("nan"), float("inf")])
def test_a_weight_is_above_zero_and_at_most_a_thousand(system_db: Database, weight: float) -> None:
    with system_db.transaction() as session, pytest.raises(InvalidField, match="weight"):
        tenants.create(session, "acme", "x", weight)


def test_a_missing_tenant_says_how_to_make_it(system_db: Database) -> None:
    with system_db.transaction() as session, pytest.raises(NotFound, match="lorry tenants create nobody"):
        tenants.get(session, "nobody")


def test_all_tenants_come_by_id(system_db: Database, world: World) -> None:
    for name in ("zeta", "acme", "mid"):
        world.tenant(name)
    with system_db.transaction() as session:
        assert [tenant.id for tenant in tenants.all_tenants(session)] == ["acme", "mid", "zeta"]
