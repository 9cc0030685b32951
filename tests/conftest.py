"""What every test may ask for: real servers, started once, with tables emptied before each test that touches them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis
from celery import Celery

from registry import migrations
from registry.db import API_ROLE, SYSTEM_ROLE, Database
from registry.embedded import EmbeddedServers, start_servers
from registry.embedded.ports import free_port
from registry.models import Base
from registry.queues import make_celery
from registry.settings import Settings
from registry.store import Store
from tests import tiny_base
from tests.world import World

# Tables without rows empty faster by DELETE than by TRUNCATE; children go before their parents.
EMPTY_ALL = "; ".join(str(table.delete()) for table in reversed(Base.metadata.sorted_tables))
# What a test would lose in a power cut it can do without.
FAST = ("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()")


def pytest_configure() -> None:
    """A shell's background job ignores SIGINT and hands that on: the programs that tests interrupt must hear it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a stack of its own: free ports, a new data folder."""
    return Settings(
        data_dir=tmp_path_factory.mktemp("lorry"),
        pg_port=free_port(),
        valkey_port=free_port(),
        database_url=None,
        broker_url=None,
    )


@pytest.fixture(scope="session")
def servers(settings: Settings) -> Iterator[EmbeddedServers]:
    """PostgreSQL with the newest schema, and Valkey."""
    running = start_servers(settings)
    try:
        with psycopg.connect(plain_url(settings.resolved_database_url), autocommit=True) as connection:
            for statement in FAST:
                connection.execute(statement)
        migrations.upgrade(settings.resolved_database_url)
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def database_url(servers: EmbeddedServers, settings: Settings) -> str:
    return settings.resolved_database_url


@pytest.fixture(scope="session")
def broker_url(servers: EmbeddedServers, settings: Settings) -> str:
    return settings.resolved_broker_url


@pytest.fixture(scope="session")
def _databases(database_url: str) -> Iterator[dict[str, Database]]:
    made = {role: Database(database_url, role) for role in (SYSTEM_ROLE, API_ROLE)}
    yield made
    for database in made.values():
        database.close()


@pytest.fixture(scope="session")
def superuser(database_url: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """May see and end other connections."""
    with psycopg.connect(plain_url(database_url), autocommit=True) as connection:
        yield connection


@pytest.fixture
def _emptied(superuser: psycopg.Connection[tuple[object, ...]]) -> None:
    # A test that left a transaction open fails the next one here, at once and by name, instead of hanging it.
    # Plans of foreign keys, made when tables were empty, would read a test's 100,000 rows once for each of them.
    superuser.execute(f"SET lock_timeout = '5s'; DISCARD PLANS; {EMPTY_ALL}")


@pytest.fixture
def system_db(_emptied: None, _databases: dict[str, Database]) -> Database:
    """Sees every tenant: as dispatcher, workers and operator commands do."""
    return _databases[SYSTEM_ROLE]


@pytest.fixture
def api_db(_emptied: None, _databases: dict[str, Database]) -> Database:
    """Bound by row-level security, as the API is."""
    return _databases[API_ROLE]


@pytest.fixture
def world(system_db: Database, tiny_base_dir: Path, settings: Settings, tmp_path: Path) -> World:
    return World(system_db, tiny_base_dir, Store(settings.store_dir), tmp_path)


@pytest.fixture
def celery(settings: Settings, broker_url: str) -> Iterator[Celery]:
    """The Celery application against an emptied broker."""
    with redis.Redis.from_url(broker_url) as client:
        client.flushall()
    app = make_celery(settings)
    yield app
    app.close()


@pytest.fixture(scope="session")
def tiny_base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base.make_tiny_base(tmp_path_factory.mktemp("bases") / "tiny")


@pytest.fixture(scope="session")
def make_adapter_dir() -> Callable[..., Path]:
    """`make_adapter_dir(path, base, rank=8, seed=0)`: a good adapter's folder."""
    return tiny_base.make_adapter_dir


def plain_url(url: str) -> str:
    """The address as libpq writes it, without SQLAlchemy's driver."""
    return url.replace("postgresql+psycopg://", "postgresql://", 1)
