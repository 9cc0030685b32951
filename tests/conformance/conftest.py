"""One running stack for all conformance tests: API, dispatcher, GPU worker without a model, io worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
import redis
from httpx2 import Client, TransportError

from registry.db import SYSTEM_ROLE, Database
from registry.embedded.ports import free_port
from registry.settings import Settings
from registry.store import Store
from tests.conftest import EMPTY_ALL
from tests.e2e.crew import Crew, Member, eventually
from tests.world import World


@dataclass(frozen=True)
class Stack:
    """`url` is the API's; behind `down_url` is one whose database is away; webhooks may go to `hook_port`."""

    world: World
    url: str
    down_url: str
    hook_port: int


@pytest.fixture(scope="module")
def stack(
    settings: Settings,
    superuser: psycopg.Connection[tuple[object, ...]],
    _databases: dict[str, Database],
    broker_url: str,
    tiny_base_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    superuser.execute(EMPTY_ALL)
    redis.Redis.from_url(broker_url).flushall()
    scratch = tmp_path_factory.mktemp("conformance")
    database = _databases[SYSTEM_ROLE]
    world = World(database, tiny_base_dir, Store(settings.store_dir), scratch)
    world.base()
    crew = Crew(
        settings,
        database,
        scratch,
        LORRY_ENGINE="fake",
        LORRY_FAKE_STEP_MS="2",
        LORRY_WEBHOOK_ALLOW_HTTP="true",
        LORRY_WEBHOOK_ALLOW_NETWORKS="127.0.0.0/8",
        LORRY_WEBHOOK_PORTS=str(hook_port := free_port()),
    )
    try:
        crew.dispatcher()
        crew.start("workers.main", "io")
        urls = _api(crew), _api(crew, LORRY_DATABASE_URL=f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/x")
        crew.worker()
        yield Stack(world, *urls, hook_port)
    finally:
        crew.close()


def _api(crew: Crew, **changes: str) -> str:
    """The address of an API process that answers."""
    port = free_port()
    member = crew.api(port, **changes)
    url = f"http://127.0.0.1:{port}"
    eventually(lambda: _answers(member, url), within_s=60)
    return url


def _answers(member: Member, url: str) -> bool:
    assert member.process.poll() is None, f"the API ended at its start: {member.log}"
    try:
        return Client().get(f"{url}/openapi.json").status_code == 200
    except TransportError:
        return False
