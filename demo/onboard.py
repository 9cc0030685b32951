"""Owns the demo's tenants in the registry: base model, tenants, adapters, keys. Everything is found again or made.

Works as the operator does, through the same functions as `lorry bases`, `tenants`, `keys` and `adapters`. Must not
import a model library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from demo.tickets import SYSTEM_PROMPT, TENANTS, USER_TEMPLATE, DemoTenant
from registry import adapter_files, adapter_intake, adapters, base_models, deployments, keys, tenants
from registry.db import SYSTEM_ROLE, Database
from registry.deployments import EngineSettings
from registry.errors import ConfigurationError, NotFound
from registry.settings import Settings
from registry.store import Store

BASE = "SmolLM2-135M-Instruct"
ALIAS = "HuggingFaceTB/SmolLM2-135M-Instruct"
ADAPTERS_DIR = Path(__file__).parent / "adapters"
TEMPLATE = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": USER_TEMPLATE}]
# Two slots for four tenants, so that adapters have to take turns: the swaps are what the demo shows.
ENGINE = EngineSettings(
    dtype="bfloat16",
    max_model_len=512,
    max_num_seqs=16,
    max_loras=2,
    max_lora_rank=8,
    max_cpu_loras=8,
    gpu_memory_utilization=0.3,
)


def onboard(settings: Settings, base_folder: Path, say: Callable[[str], None]) -> None:
    """Register what is missing of base, tenants and adapters; `say` gets a line for each.

    Raises ConfigurationError when an adapter's folder is missing or another deployment leaves no room.
    """
    with _database(settings) as database:
        say(f"base {BASE}: {_ensure_base(database, base_folder, settings.kv_cache_gib)}")
        for tenant in TENANTS:
            _ensure_tenant(database, tenant)
            say(f"tenant {tenant.id} ({tenant.form}): {_ensure_adapter(database, settings, tenant)}")


def make_keys(settings: Settings, name: str, days: int | None) -> dict[str, str]:
    """A new API key for each tenant, by its id: only hashes are stored, so an earlier run's cannot be used again."""
    expires_at = datetime.now(UTC) + timedelta(days=days) if days else None
    with _database(settings) as database, database.transaction() as session:
        return {tenant.id: keys.create(session, tenant.id, name, expires_at)[1] for tenant in TENANTS}


@contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=1)
    try:
        yield database
    finally:
        database.close()


def _ensure_base(database: Database, folder: Path, kv_cache_gib: float) -> str:
    with database.transaction() as session:
        try:
            return f"known, {base_models.get(session, BASE).path}"
        except NotFound:
            base_models.add(session, BASE, folder, revision=None, aliases=[ALIAS], template=TEMPLATE)
            deployments.add(session, BASE, BASE, ENGINE, is_default=True, kv_cache_gib=kv_cache_gib)
    return f"registered with its deployment, {ENGINE.max_loras} adapter slots, {folder}"


def _ensure_tenant(database: Database, tenant: DemoTenant) -> None:
    with database.transaction() as session:
        try:
            tenants.get(session, tenant.id)
        except NotFound:
            tenants.create(session, tenant.id, tenant.display_name)


def _ensure_adapter(database: Database, settings: Settings, tenant: DemoTenant) -> str:
    """The tenant's adapter, active, with the very files of this repository."""
    folder = ADAPTERS_DIR / tenant.id
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is missing: take it from the repository, or train it: python -m demo.train."
        )
    digest = adapter_files.digest(folder)
    with database.transaction() as session:
        same = [row for row in adapters.of_tenant(session, tenant.id, tenant.adapter) if row.digest == digest]
        if same and not any(row.is_active for row in same):
            adapters.activate(session, tenant.id, tenant.adapter, same[0].version)
    if same:
        return f"adapter {tenant.adapter}@{same[0].version} is there"
    row = adapter_intake.intake(
        database,
        Store(settings.store_dir),
        tenant.id,
        tenant.adapter,
        folder,
        max_bytes=settings.max_adapter_bytes,
        stated_by="demo",
        activate=True,
    )
    return (
        f"adapter {tenant.adapter}@{row.version} checked and registered, rank {row.rank}, {row.size_bytes / 1e6:.1f} MB"
    )
