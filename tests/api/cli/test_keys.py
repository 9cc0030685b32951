"""`lorry keys`."""

from __future__ import annotations

import json

import pytest

from registry import keys
from registry.db import Database
from registry.errors import Unauthorized
from tests.api.cli.conftest import Lorry
from tests.world import World


def test_the_new_key_alone_is_on_stdout_and_opens_the_tenant(lorry: Lorry, world: World, api_db: Database) -> None:
    world.tenant("acme")
    answer = lorry("keys", "create", "acme")
    (secret,) = answer.out.split()
    with api_db.transaction() as session:
        assert keys.authenticate(session, secret).tenant_id == "acme"
    assert secret not in answer.err


def test_a_list_shows_prefixes_and_never_the_key(lorry: Lorry, world: World) -> None:
    world.tenant("acme")
    secret = lorry("keys", "create", "acme", "--name", "ci", "--expires-days", "3").out.strip()
    shown = lorry("keys", "list", "acme", "--json").out
    (key,) = json.loads(shown)
    assert secret.startswith(key["prefix"])
    assert secret not in shown
    assert key["name"] == "ci"
    assert key["expires_at"] is not None
    assert key["revoked_at"] is None


def test_a_revoked_key_opens_nothing(lorry: Lorry, world: World, api_db: Database) -> None:
    secret = world.key("acme")
    prefix = "_".join(secret.split("_")[:2])
    assert lorry("keys", "revoke", prefix).status == 0
    with api_db.transaction() as session, pytest.raises(Unauthorized):
        keys.authenticate(session, secret)
    assert lorry("keys", "revoke", prefix).status == 1


@pytest.mark.parametrize("command", ["create", "list"])
def test_an_unknown_tenant_is_told_apart_from_one_without_keys(lorry: Lorry, command: str) -> None:
    answer = lorry("keys", command, "nobody")
    assert answer.status == 1
    assert "[not_found]" in answer.err
    assert "lorry tenants create nobody" in answer.err
