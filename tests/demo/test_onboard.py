"""The demo's tenants in the registry, found again or made. The adapters' own base is stood in for by its shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo import onboard
from demo.tickets import TENANTS
from registry import adapters, base_models, deployments, keys
from registry.db import Database
from registry.errors import ConfigurationError
from registry.settings import Settings


def test_base_tenants_and_adapters_are_there_and_active(
    system_db: Database, settings: Settings, smollm_dir: Path
) -> None:
    said: list[str] = []
    onboard.onboard(settings, smollm_dir, said.append)
    with system_db.transaction() as session:
        assert base_models.get(session, onboard.ALIAS).name == onboard.BASE
        assert deployments.serving(session, onboard.BASE, 8).max_loras == 2
        for tenant in TENANTS:
            assert adapters.resolve(session, tenant.id, tenant.adapter).base_model == onboard.BASE
    assert len(said) == 1 + len(TENANTS)


def test_a_second_run_finds_everything_again(system_db: Database, settings: Settings, smollm_dir: Path) -> None:
    for _ in range(2):
        onboard.onboard(settings, smollm_dir, lambda line: None)
    with system_db.transaction() as session:
        assert [len(adapters.of_tenant(session, tenant.id)) for tenant in TENANTS] == [1] * len(TENANTS)


def test_keys_open_their_own_tenant_and_end_by_themselves(
    system_db: Database, api_db: Database, settings: Settings, smollm_dir: Path
) -> None:
    onboard.onboard(settings, smollm_dir, lambda line: None)
    made = onboard.make_keys(settings, "demo run", days=1)
    with api_db.transaction() as session:
        assert {keys.authenticate(session, secret).tenant_id for secret in made.values()} == set(made)
    with system_db.transaction() as session:
        (row,) = keys.of_tenant(session, TENANTS[0].id)
        assert row.expires_at is not None


def test_an_adapter_that_is_not_in_the_repository_is_said_so(
    system_db: Database, settings: Settings, smollm_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onboard, "ADAPTERS_DIR", tmp_path)
    with pytest.raises(ConfigurationError, match=r"demo\.train"):
        onboard.onboard(settings, smollm_dir, lambda line: None)
