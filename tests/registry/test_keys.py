"""API keys: shown once, stored as a hash, and refused alike whatever is wrong with them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from registry import keys
from registry.db import Database
from registry.errors import NotFound, Unauthorized
from tests.world import World


def test_a_key_opens_its_tenant_under_the_apis_role(api_db: Database, world: World) -> None:
    secrets = {tenant: world.key(tenant) for tenant in ("acme", "globex")}
    for tenant, secret in secrets.items():
        with api_db.transaction() as session:
            assert keys.authenticate(session, secret).tenant_id == tenant


def test_only_prefix_and_hash_are_stored(system_db: Database, world: World) -> None:
    secret = world.key("acme")
    with system_db.transaction() as session:
        row = session.execute(text("SELECT * FROM api_keys")).mappings().one()
    assert row["sha256"] == hashlib.sha256(secret.encode()).digest()
    assert secret.startswith(row["prefix"] + "_")
    assert len(row["prefix"]) == len("lorry_") + 8
    assert secret[len(row["prefix"]) + 1 :] not in str(dict(row))


def test_two_keys_are_never_alike(world: World) -> None:
    assert len({world.key("acme") for _ in range(50)}) == 50


def test_a_revoked_key_is_refused_at_once(system_db: Database, api_db: Database, world: World) -> None:
    secret, kept = world.key("acme"), world.key("acme")
    with system_db.transaction() as session:
        assert keys.revoke(session, secret.rpartition("_")[0][:14]).revoked_at is not None
    with api_db.transaction() as session:
        with pytest.raises(Unauthorized):
            keys.authenticate(session, secret)
        assert keys.authenticate(session, kept).tenant_id == "acme"


def test_an_expired_key_is_refused_and_one_that_expires_later_is_not(
    system_db: Database, api_db: Database, world: World
) -> None:
    world.tenant("acme")
    now = datetime.now(UTC)
    with system_db.transaction() as session:
        _, expired = keys.create(session, "acme", "old", now - timedelta(seconds=1))
        _, valid = keys.create(session, "acme", "new", now + timedelta(hours=1))
    with api_db.transaction() as session:
        assert keys.authenticate(session, valid).tenant_id == "acme"
        with pytest.raises(Unauthorized):
            keys.authenticate(session, expired)


@pytest.mark.parametrize(
    "presented",
    [
        "",
        "lorry_",
        "sk-abc",
        "lorry_abcdefgh_" + "A" * 42,
        "lorry_abcdefgh_" + "A" * 43,
        "lorry_abcdefgh_" + "A" * 44,
        "lorry_ABCDEFGH_" + "A" * 43,
        "lorry_abcdefgh_" + "A" * 42 + "\n",
        "lorry_abcdefgh_" + "é" * 43,
        "\x00" * 58,
    ],
)
def test_malformed_and_unknown_keys_get_the_same_answer(api_db: Database, presented: str) -> None:
    with api_db.transaction() as session, pytest.raises(Unauthorized) as caught:
        keys.authenticate(session, presented)
    assert str(caught.value).startswith("The API key is missing, unknown, expired or revoked.")
    assert presented == "" or presented not in str(caught.value).replace("lorry_…", "")


def test_the_right_prefix_with_another_secret_is_refused(api_db: Database, world: World) -> None:
    secret = world.key("acme")
    changed = secret[:-1] + ("A" if secret[-1] != "A" else "B")
    with api_db.transaction() as session, pytest.raises(Unauthorized):
        keys.authenticate(session, changed)


def test_a_key_needs_a_tenant_and_revoking_needs_a_live_key(system_db: Database, world: World) -> None:
    with system_db.transaction() as session:
        with pytest.raises(NotFound, match="lorry tenants create"):
            keys.create(session, "nobody", "x")
        with pytest.raises(NotFound, match="lorry keys list"):
            keys.revoke(session, "lorry_abcdefgh")
    prefix = world.key("acme")[:14]
    with system_db.transaction() as session:
        keys.revoke(session, prefix)
        with pytest.raises(NotFound):
            keys.revoke(session, prefix)


def test_a_tenants_keys_are_listed_newest_first_revoked_ones_included(system_db: Database, world: World) -> None:
    world.key("globex")
    prefixes = [world.key("acme")[:14] for _ in range(3)]
    with system_db.transaction() as session:
        keys.revoke(session, prefixes[1])
        assert [key.prefix for key in keys.of_tenant(session, "acme")] == prefixes[::-1]
