"""Builds what a test's story needs, in as few words as the story: tenants, keys, a base, adapters, jobs."""

from __future__ import annotations

import itertools
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from registry import (
    adapter_files,
    adapters,
    backlog,
    base_models,
    deployments,
    jobs,
    keys,
    presence,
    tenants,
    transitions,
)
from registry.db import Database
from registry.deployments import EngineSettings
from registry.ids import new_id
from registry.models import Adapter, BaseAlias, BaseModel, Job, Tenant
from registry.shapes import JobCreate
from registry.states import TERMINAL, State
from registry.store import Store
from tests.registry.adapter_corpus import BASE_NAME
from tests.tiny_base import make_adapter_dir


class World:
    """Everything here commits. A name that is not there yet is made: `world.job("acme")` needs no other line."""

    def __init__(self, database: Database, base_dir: Path, store: Store, scratch: Path) -> None:
        self.db = database
        self.base_dir = base_dir
        self.store = store
        self.scratch = scratch
        self._numbers = itertools.count(1)

    def tenant(self, tenant_id: str = "acme", *, weight: float = 1.0) -> str:
        """The tenant's id."""
        with self.db.transaction() as session:
            if session.get(Tenant, tenant_id) is None:
                tenants.create(session, tenant_id, tenant_id.title(), weight)
        return tenant_id

    def key(self, tenant_id: str = "acme") -> str:
        """A new key's secret."""
        self.tenant(tenant_id)
        with self.db.transaction() as session:
            return keys.create(session, tenant_id, "test")[1]

    def base(
        self,
        name: str = "Tiny",
        path: Path | None = None,
        *,
        aliases: tuple[str, ...] | None = None,
        template: list[Any] | None = None,
        **engine: Any,
    ) -> str:
        """A base and its default deployment, both of this name; `engine` are EngineSettings, small by default."""
        with self.db.transaction() as session:
            if session.get(BaseModel, name) is None:
                known_as = aliases if aliases is not None else (() if self._taken(session) else (BASE_NAME,))
                base_models.add(
                    session,
                    name,
                    path or self.base_dir,
                    revision=None,
                    aliases=known_as,
                    template=template or base_models.DEFAULT_TEMPLATE,
                )
                self._deploy(session, name, name, engine, is_default=True)
        return name

    def deployment(self, name: str, base: str = "Tiny", **engine: Any) -> str:
        """One more deployment of a base: a rank class."""
        self.base(base)
        with self.db.transaction() as session:
            self._deploy(session, name, base, engine, is_default=False)
        return name

    def adapter(
        self,
        tenant_id: str = "acme",
        name: str = "tickets",
        *,
        base: str = "Tiny",
        rank: int = 8,
        seed: int | None = None,
    ) -> Adapter:
        """A new version of real files, in the store; the first one of its name is active."""
        self.tenant(tenant_id)
        self.base(base)
        folder = make_adapter_dir(
            self.scratch / f"adapter-{(number := next(self._numbers))}",
            self._base_path(base),
            rank,
            number if seed is None else seed,
        )
        return self.adapter_from(folder, tenant_id, name, base=base)

    def adapter_from(
        self, folder: Path, tenant_id: str = "acme", name: str = "tickets", *, base: str = "Tiny"
    ) -> Adapter:
        """A new version of a folder's files, in the store."""
        self.tenant(tenant_id)
        with self.db.transaction() as session:
            facts = adapter_files.check(
                folder,
                base_shapes=adapter_files.base_shapes(self._base_path(base)),
                base_names=base_models.names_of(session, base) | {BASE_NAME},
                max_rank=deployments.rank_ceiling(session, base),
                max_bytes=2**30,
            )
            return adapters.register(session, tenant_id, name, facts, self.store.put(folder, facts.digest), base)

    def _base_path(self, base: str) -> Path:
        with self.db.transaction() as session:
            return Path(base_models.get(session, base).path)

    def job(
        self, tenant_id: str = "acme", *, model: str | None = None, max_tokens: int = 16, **fields: Any
    ) -> uuid.UUID:
        """A queued job: on the base unless `model` names an adapter, with a short document unless told otherwise."""
        self.tenant(tenant_id)
        wanted = model or self.base()
        if not {"document", "messages", "prompt"} & set(fields):
            fields["document"] = "The printer jams whenever two-sided mode is on."
        with self.db.transaction() as session:
            resolved = adapters.resolve(session, tenant_id, wanted)
            return jobs.submit(session, tenant_id, JobCreate(model=wanted, **fields), resolved, max_tokens)

    def job_in(self, state: State, *, worker: uuid.UUID | None = None, adapter: Adapter | None = None) -> uuid.UUID:
        """A job's row put straight into a state, past its deadline, at fence 1, as consistent as the checks ask."""
        ended, running = state in TERMINAL, state == State.RUNNING
        with self.db.transaction() as session:
            now = session.scalars(select(func.now())).one()
            row = Job(
                id=new_id(),
                tenant_id=adapter.tenant_id if adapter else self.tenant(),
                deployment=self.base(),
                adapter_id=adapter.adapter_id if adapter else None,
                model="Tiny",
                state=state,
                deadline=now - timedelta(seconds=1),
                fence=1,
                worker=worker or new_id() if running else None,
                started_at=now if running else None,
                finished_at=now if ended else None,
                turn=1,
                error_code="x" if state == State.FAILED else None,
            )
            session.add(row)
            return row.id

    def worker(self, deployment: str = "Tiny", *, capacity: int = 8) -> uuid.UUID:
        """A ready worker's row."""
        if deployment == "Tiny":
            self.base()
        with self.db.transaction() as session:
            worker_id = presence.register(session, f"w{next(self._numbers)}", deployment, "here", 1, capacity)
            presence.become(session, worker_id, "ready")
        return worker_id

    def pick(self, wanted: int = 100, deployment: str = "Tiny") -> list[uuid.UUID]:
        """Dispatch queued jobs; their ids in the order of sending."""
        with self.db.transaction() as session:
            return list(backlog.pick(session, deployment, wanted, run=wanted).jobs)

    def claim(self, worker: uuid.UUID, ids: list[uuid.UUID], deployment: str = "Tiny") -> list[transitions.Claimed]:
        """Give dispatched jobs to a worker."""
        with self.db.transaction() as session:
            return transitions.claim(session, ids, deployment, worker)

    def row(self, job_id: uuid.UUID) -> dict[str, Any]:
        """The job's row as it is now."""
        with self.db.transaction() as session:
            row = session.execute(text("SELECT * FROM jobs WHERE id = :id"), {"id": job_id}).mappings().one()
            return dict(row)

    def state(self, job_id: uuid.UUID) -> str:
        """The job's state as it is now."""
        return str(self.row(job_id)["state"])

    def base_row(self, name: str = "Tiny") -> BaseModel:
        """The base's row."""
        with self.db.transaction() as session:
            return base_models.get(session, name)

    @staticmethod
    def _taken(session: Session) -> bool:
        return session.get(BaseAlias, BASE_NAME) is not None

    @staticmethod
    def _deploy(session: Session, name: str, base: str, engine: dict[str, Any], *, is_default: bool) -> None:
        small = {"max_model_len": 512, "max_num_seqs": 8, "max_loras": 2, "max_lora_rank": 8, "max_cpu_loras": 8}
        settings = EngineSettings(**{**small, "dtype": "float32", "gpu_memory_utilization": 0.1, **engine})
        deployments.add(session, name, base, settings, is_default=is_default, kv_cache_gib=0.01)
