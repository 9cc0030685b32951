"""A Lorry of a benchmark's own: embedded servers, dispatcher, workers as real processes with the product's defaults.

Jobs enter through the registry; times are the database's. A context manager that leaves nothing behind.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from sqlalchemy import text

from benchmarks import model
from benchmarks.children import Child, until
from benchmarks.workload import Request
from registry import adapter_files, adapters, base_models, deployments, jobs, migrations, tenants, wake
from registry.db import SYSTEM_ROLE, Database
from registry.deployments import EngineSettings
from registry.embedded import start_servers
from registry.embedded.ports import free_port
from registry.models import Tenant
from registry.settings import Settings
from registry.shapes import JobCreate
from registry.store import Store
from workers.generation import AdapterRef, EngineConfig

ADAPTER = "adapter"
_GIB = 1024**3

_ENDED = text("""
SELECT count(*) FILTER (WHERE finished_at IS NOT NULL) AS ended, count(*) FILTER (WHERE state = 'succeeded') AS good,
       sum(output_tokens) AS tokens, extract(epoch FROM max(finished_at))::float8 AS last_s
FROM jobs WHERE id = ANY(:ids)
""")

_OPEN = text("SELECT EXISTS (SELECT FROM jobs WHERE id = ANY(:ids) AND finished_at IS NULL)")

_TIMES = text("""
SELECT id, created_at, started_at, finished_at, timing FROM jobs WHERE id = ANY(:ids) ORDER BY seq
""")

_WAKE = text("SELECT extract(epoch FROM clock_timestamp())::float8 AS now_s, pg_notify(:channel, '')")

_READY = text("SELECT count(DISTINCT deployment) FROM workers WHERE state = 'ready' AND deployment = ANY(:names)")


@dataclass(frozen=True, slots=True)
class Finished:
    """A run's end. `seconds`: from the submission's commit to the last settle, by the database's clock."""

    seconds: float
    tokens: int
    activations: float


@dataclass(frozen=True, slots=True)
class Times:
    """One job's instants, and its timing as its tenant reads it."""

    created: datetime
    started: datetime | None
    finished: datetime | None
    timing: dict[str, Any] | None


class Stack:
    """`with Stack(folder) as stack:` has both servers and a dispatcher; bases and workers are added."""

    def __init__(self, folder: Path, *, dispatcher: bool = True) -> None:
        self.folder = folder
        self.settings = Settings(data_dir=folder / "data", pg_port=free_port(), valkey_port=free_port())
        self._servers = start_servers(self.settings)
        self.children: dict[str, Child] = {}
        try:
            migrations.upgrade(self.settings.resolved_database_url)
            self.db = Database(self.settings.resolved_database_url, SYSTEM_ROLE)
            self._environment = {
                "LORRY_DATABASE_URL": self.settings.resolved_database_url,
                "LORRY_BROKER_URL": self.settings.resolved_broker_url,
                "LORRY_DATA_DIR": str(self.settings.data_dir),
            }
            if dispatcher:
                self.start("dispatcher", "workers.dispatcher")
        except BaseException:
            self._servers.stop()
            raise

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for child in self.children.values():
            child.close()
        self.db.close()
        self._servers.stop()

    @property
    def broker_url(self) -> str:
        """A database of the broker beside the product's own, for arms that are not Lorry."""
        return self.settings.resolved_broker_url.removesuffix("/0") + "/1"

    def start(self, name: str, *argv: str, **environment: str) -> Child:
        """One more process of the product or of an arm."""
        self.children[name] = Child(list(argv), self.folder / f"{name}.log", **{**self._environment, **environment})
        return self.children[name]

    def worker(self, deployment: str, **environment: str) -> Child:
        """A GPU worker's process, just started; see `ready`."""
        return self.start(
            f"worker-{deployment}", "workers.main", "gpu", "--deployment", deployment, "--device", "0", **environment
        )

    def ready(self, *deployments_: str) -> None:
        """Wait until a worker of each deployment is ready."""

        def look() -> bool:
            for child in self.children.values():
                child.check()
            with self.db.transaction() as session:
                ready = session.scalar(_READY, {"names": list(deployments_)})
            return bool(ready == len(set(deployments_)))

        until(look, within_s=180)

    def base(self, name: str, path: Path, engine: EngineSettings) -> None:
        """Register a base and its deployment, both of this name."""
        with self.db.transaction() as session:
            template = base_models.DEFAULT_TEMPLATE
            base_models.add(session, name, path, revision=None, aliases=(), template=template)
            deployments.add(session, name, name, engine, is_default=True, kv_cache_gib=self.settings.kv_cache_gib)

    def adapters(self, base: str, count: int, rank: int) -> list[AdapterRef]:
        """A tenant with one adapter for each number; how the engine knows them."""
        with self.db.transaction() as session:
            path = Path(base_models.get(session, base).path)
        folders = [model.adapter(path, model.NAME, rank, seed) for seed in range(count)]
        return [self._adapter(base, path, number, folder) for number, folder in enumerate(folders)]

    def _adapter(self, base: str, path: Path, number: int, folder: Path) -> AdapterRef:
        facts = adapter_files.check(
            folder,
            base_shapes=adapter_files.base_shapes(path),
            base_names=frozenset({model.NAME, base}),
            max_rank=512,
            max_bytes=2**31,
        )
        home = Store(self.settings.store_dir).put(folder, facts.digest)
        tenant = self.tenant(tenant_of(base, number))
        with self.db.transaction() as session:
            row = adapters.register(session, tenant, ADAPTER, facts, home, base)
            return AdapterRef(row.adapter_id, f"{tenant}/{ADAPTER}", str(home))

    def tenant(self, tenant_id: str) -> str:
        """The tenant, made if it is not there."""
        with self.db.transaction() as session:
            if session.get(Tenant, tenant_id) is None:
                tenants.create(session, tenant_id, tenant_id)
        return tenant_id

    def submit(self, base: str, requests: Sequence[Request]) -> tuple[list[uuid.UUID], float]:
        """Jobs in one transaction; their ids, and when it had committed (seconds of the database's clock)."""
        with self.db.transaction() as session:
            ids = []
            for request in requests:
                number = request.adapter
                tenant = tenant_of(base, number or 0)
                wanted = JobCreate(model=base if number is None else ADAPTER, prompt=request.prompt)
                resolved = adapters.resolve(session, tenant, wanted.model)
                ids.append(jobs.submit(session, tenant, wanted, resolved, request.max_tokens))
        return ids, self.wake()

    def vacuum(self, *tables: str) -> None:
        """What autovacuum does in time, now."""
        url = self.settings.resolved_database_url.replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            for table in tables:
                connection.execute(psycopg.sql.SQL("VACUUM ANALYZE {}").format(psycopg.sql.Identifier(table)))

    def wake(self) -> float:
        """Tell the dispatcher, as the API does after a commit; the database's time."""
        with self.db.transaction() as session:
            row = session.execute(_WAKE, {"channel": wake.QUEUED}).one()
        return float(row.now_s)

    def run(self, base: str, requests: Sequence[Request]) -> Finished:
        """Submit, wait for the last settle. Raises RuntimeError unless all succeed."""
        ids, begun_s = self.submit(base, requests)
        self.wait(ids)
        return self.finished(ids, begun_s)

    def wait(self, ids: Sequence[uuid.UUID], every_s: float = 0.1) -> None:
        """Until none of these jobs is open."""

        def look() -> bool:
            for child in self.children.values():
                child.check()
            with self.db.transaction() as session:
                return not session.scalar(_OPEN, {"ids": list(ids)})

        until(look, every_s=every_s)

    def finished(self, ids: Sequence[uuid.UUID], begun_s: float) -> Finished:
        """What these jobs came to. Raises RuntimeError unless all succeeded."""
        with self.db.transaction() as session:
            row = session.execute(_ENDED, {"ids": list(ids)}).one()
        if row.good != len(ids):
            raise RuntimeError(f"{len(ids) - row.good} of {len(ids)} jobs did not succeed")
        return Finished(row.last_s - begun_s, int(row.tokens), activations(self.times(ids)))

    def times(self, ids: Sequence[uuid.UUID]) -> list[Times]:
        """Instants of each job, in order of submission."""
        with self.db.transaction() as session:
            rows = session.execute(_TIMES, {"ids": list(ids)}).all()
        return [Times(row.created_at, row.started_at, row.finished_at, row.timing) for row in rows]


def engine_config(path: Path, engine: EngineSettings, kv_cache_gib: float) -> str:
    """A worker's engine arguments for an arm's process, as JSON."""
    fields = {name: getattr(engine, name) for name in engine.__slots__ if name in EngineConfig.__slots__}
    return json.dumps(asdict(EngineConfig(model_path=str(path), kv_cache_bytes=int(kv_cache_gib * _GIB), **fields)))


def tenant_of(base: str, number: int) -> str:
    """The tenant that owns adapter `number` of a base."""
    return f"{base}-{number}".lower()


def activations(times: Sequence[Times]) -> float:
    """How many times an adapter was brought into a slot: each job says with how many it shared a swap."""
    swaps = [(one.timing or {}).get("swap") for one in times]
    return float(sum(1 / swap["shared_by"] for swap in swaps if swap and swap["state"] != "hot"))
