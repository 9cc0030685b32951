"""A stack of one's own for faults: servers that may die, and the processes on top of them.

Nothing is emptied between rows: the checker looks at everything that was ever acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import redis

from registry import migrations
from registry.db import SYSTEM_ROLE, Database
from registry.embedded.ports import free_port
from registry.embedded.postgres import Postgres
from registry.embedded.valkey import Valkey
from registry.queues import make_celery
from registry.settings import Settings
from registry.store import Store
from tests import tiny_base
from tests.conftest import plain_url
from tests.e2e.crew import ROOT, Crew, Member, eventually
from tests.faults.load import Load
from tests.faults.servers import Server
from tests.world import World

QUICK = {"LORRY_BEAT_S": "0.5", "LORRY_LEASE_S": "3", "LORRY_RESEND_AFTER_S": "1", "LORRY_DRAIN_GRACE_S": "2"}
"""The short form's settings: a dead worker is seen in seconds."""
FAKE = {"LORRY_ENGINE": "fake", "LORRY_FAKE_STEP_MS": "10", "LORRY_WEBHOOK_ALLOW_HTTP": "true"}


class Cluster:
    """`with Cluster(folder) as cluster:` has both servers, the base `Tiny` and no process yet."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        data_dir = folder / "data"
        pg_port, valkey_port = free_port(), free_port()
        self.postgres = Server(Postgres(data_dir.absolute(), pg_port))
        self.valkey = Server(Valkey(data_dir.absolute(), valkey_port))
        data_dir.mkdir(parents=True)
        for server in (self.postgres, self.valkey):
            server.start()
        # Read after the first start: the passwords are made by it.
        self.settings = Settings(
            data_dir=data_dir,
            pg_port=pg_port,
            valkey_port=valkey_port,
            database_url=None,
            broker_url=None,
            lease_s=float(environment.get("LORRY_LEASE_S", "30")),
        )
        migrations.upgrade(self.settings.resolved_database_url)
        self.db = Database(self.settings.resolved_database_url, SYSTEM_ROLE)
        base = tiny_base.make_tiny_base(folder / "base")
        self.world = World(self.db, base, Store(self.settings.store_dir), folder)
        self.crew = Crew(self.settings, self.db, folder, **{**FAKE, **environment})
        self.celery = make_celery(self.settings)
        self.load = Load(self.world)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.crew.close()
        self.celery.close()
        self.db.close()
        self.valkey.stop()
        self.postgres.stop()

    @property
    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.settings.resolved_broker_url, socket_timeout=5)

    def superuser(self) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the owner's; the caller closes it."""
        return psycopg.connect(plain_url(self.settings.resolved_database_url), autocommit=True)

    def victim(self, device: str, *, deployment: str = "Tiny", wait: bool = True, **changes: str) -> Member:
        """One more worker, under a name of its own."""
        return self.crew.worker(deployment, device=device, wait=wait, root=ROOT, **changes)

    def altered(self, alteration: str, device: str, deployment: str = "Tiny", **changes: str) -> Member:
        """A worker by way of `tests.faults.entry`; it may not live to say that it is ready."""
        kind = ("gpu", "--deployment", deployment, "--device", device)
        return self.crew.start("tests.faults.entry", alteration, *kind, before=(), root=ROOT, **changes)

    @property
    def addresses(self) -> dict[str, str]:
        """Where the servers are, as a process is told."""
        known = self.settings
        return {"LORRY_DATABASE_URL": known.resolved_database_url, "LORRY_BROKER_URL": known.resolved_broker_url}

    def api(self, **changes: str) -> str:
        """Starts the API; its address once it answers."""
        port = free_port()
        self.crew.api(port, LORRY_HOST="127.0.0.1", **changes)
        eventually(lambda: answers(port))
        return f"http://127.0.0.1:{port}"


def answers(port: int) -> bool:
    """Whether an API is ready to serve there."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def took(look: Callable[[], object], *, within_s: float) -> float:
    """Seconds until `look` was true for the first time."""
    begun = time.monotonic()
    eventually(look, within_s=within_s, every_s=0.02)
    return time.monotonic() - begun
