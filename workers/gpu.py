"""A GPU worker's parts, put together: presence, writer, engine, planner. One per process, made by `workers.main`."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry import base_models, deployments, metrics
from registry.db import SYSTEM_ROLE, Database
from registry.errors import EngineStartFailed, GenerationFailed, LorryError
from registry.logs import get_logger
from registry.models import BaseModel, Deployment
from registry.prompts import PromptFormat
from registry.settings import Settings
from registry.store import Store
from workers import consuming, outcomes
from workers.autosize import Places, places
from workers.engine_choice import make_engine
from workers.in_hand import InHand
from workers.outlook import Outlook
from workers.planner import Planner
from workers.policy import Rules
from workers.preparation import Preparation
from workers.presence import Presence
from workers.restart import Restart
from workers.settle import Writer
from workers.watchdog import Signs, Traffic

ENGINE_CLOSE_S = 3.0
"""Nothing in an engine is worth waiting for when its last job has left it: then it is killed."""
WRITER_CLOSE_S = 4.0
"""Longest that the last outcomes wait for a registry that is away; after that the lease hands their jobs to others."""
UNPREPARED = "The worker could not make a prompt of this job. The operator finds the reason in the worker's log."

_log = get_logger("worker")
_current: GpuWorker | None = None


def held_capacity(settings: Settings, max_num_seqs: int, max_loras: int | None) -> int:
    """How many jobs a worker holds (design section 8): what the planner can see and choose from. Without `max_loras`,
    as if there were one slot."""
    return settings.held or min(256, max(8 * max_num_seqs, 16 * (max_loras or 1)))


@dataclass(frozen=True, slots=True)
class Assignment:
    """What this worker serves."""

    deployment: Deployment
    base: BaseModel
    capacity: int
    places: Places


def assignment(database: Database, settings: Settings, name: str) -> Assignment:
    """Read the deployment and its base. Raises NotFound."""
    with database.transaction() as session:
        deployment = deployments.get(session, name)
        base = base_models.get(session, deployment.base_model)
        sized = places(session, settings, deployment, base)
    capacity = held_capacity(settings, deployment.max_num_seqs, sized.max_loras)
    return Assignment(deployment, base, capacity, sized)


class GpuWorker:
    """Start it, `run` jobs from any number of threads, `drain`, `close`."""

    def __init__(self, settings: Settings, name: str, serves: Assignment) -> None:
        self._settings = settings
        self._database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=4)
        deployment, base = serves.deployment, serves.base
        self.presence = Presence(
            self._database,
            settings.resolved_database_url,
            name,
            deployment.name,
            serves.capacity,
            settings.beat_s,
            serves.places.sums,
        )
        self._writer = Writer(
            self._database,
            deployment.name,
            lambda: self.presence.worker_id,
            quarantine_after=settings.quarantine_after_failures,
        )
        self._engine = make_engine(settings, deployment, base, serves.places)
        self._preparation = Preparation(PromptFormat(Path(base.path), base.template), deployment.max_model_len)
        rules = Rules(
            max_live=deployment.max_num_seqs,
            max_loras=serves.places.max_loras,
            grouping_max_wait_s=settings.grouping_max_wait_s,
            adapter_max_wait_s=settings.adapter_max_wait_s,
            max_held=serves.capacity,
        )
        self._planner = Planner(self._engine, rules, Store(settings.store_dir), self._writer, self._engine_died)
        self._outlook = Outlook(self._database, deployment.name, self._planner)
        self._restart = Restart(self._engine, self._planner.resume, self._serve)
        self.traffic = Traffic(serves.capacity)
        self._in_hand = InHand()
        self._closing = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Start the engine, then say `ready`. Raises EngineStartFailed."""
        self._engine.start()
        self._show()
        self.presence.ready(self._planner.report, self._planner.held_ids, self._planner.abandon, self._in_hand.ids)

    def _show(self) -> None:
        """What the planner reports, for whoever looks at the metrics."""
        report = self._planner.report

        def residency(key: str) -> Callable[[], float]:
            return lambda: float(report().residency[key])

        metrics.watch(
            {
                metrics.HELD: lambda: report().held,
                metrics.LIVE: lambda: report().live,
                metrics.LIVE_ADAPTERS: residency("live_adapters"),
                metrics.STEP_TIME_LOADS: residency("step_time_loads"),
                metrics.RESIDENCY_DIFFERENCES: residency("differences"),
            }
        )

    def run(self, job_id: uuid.UUID) -> None:
        """Claim a job, run it, and return when its ending is written. Returns at once when it is not to be had."""
        with self.traffic.job(), self._in_hand.job(job_id):
            self._run(job_id)

    def _run(self, job_id: uuid.UUID) -> None:
        claimed = self._writer.claim(job_id).result()
        if claimed is None:
            return
        try:
            division = self._preparation.division(claimed)
            job = self._preparation.held_job(claimed) if division is None else None
        except LorryError as error:
            self._writer.settle(outcomes.failed(claimed.job_id, claimed.fence, error)).result()
        except Exception as error:  # noqa: BLE001 - a template or tokenizer with a defect: no job may run round for ever
            _log.error("a job could not be prepared", job=str(job_id), error=type(error).__name__)
            unprepared = outcomes.failed(claimed.job_id, claimed.fence, GenerationFailed(UNPREPARED))
            self._writer.settle(unprepared).result()
        else:
            if division is not None:
                self._writer.divide(division).result()
            if job is not None:
                self._planner.hold(job)
                job.done.result()

    def drain(self) -> None:
        """Hand back what has not begun, finish what ends within the grace, hand back the rest."""
        self.presence.become("draining")
        self._planner.drain(self._settings.drain_grace_s)

    def let_go(self) -> None:
        """Give everything back at once: nobody waits for its ends any more. Late writes of ours match nothing."""
        self.presence.silence()
        self.presence.give_back()

    def close(self) -> None:
        """Stop the engine and say goodbye. Who comes second waits for the first."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self._outlook.close()
            self._engine.close(ENGINE_CLOSE_S)
            self._writer.close(WRITER_CLOSE_S)
            self.presence.end()
            self._database.close()

    @property
    def signs(self) -> Signs:
        """What `watchdog` looks at."""
        return Signs(
            self.traffic,
            self.presence.asked_to_drain,
            self._restart.failed,
            self._restart.under_way,
            self._call_engine,
            self._kill_engine,
            self._is_idle_with_jobs,
        )

    def _is_idle_with_jobs(self) -> bool:
        """Whether jobs wait for an engine that runs and has none."""
        report = self._planner.report()
        return report.held > report.live == 0 and not self._restart.under_way.is_set()

    def _call_engine(self) -> Future[Any]:
        """Something that the engine answers between two steps. It is not asked while it starts."""
        if self._restart.under_way.is_set():
            answer: Future[Any] = Future()
            answer.set_result(None)
            return answer
        return asyncio.run_coroutine_threadsafe(self._engine.live_adapters(), self._engine.loop)

    def _kill_engine(self) -> None:
        """Whatever is in it ends with EngineDead, and the planner has it started again."""
        _log.error("the engine does not answer; it is killed")
        self._engine.close(0.0)

    def _engine_died(self) -> None:
        self._restart.begin()

    def _serve(self, wanted: bool) -> None:
        """Take jobs, or leave them to others while the engine is being started."""
        consuming.take(wanted)
        self.presence.become("ready" if wanted else "starting")


def install(worker: GpuWorker) -> None:
    """Make this the process's worker, for its tasks."""
    global _current
    _current = worker


def current() -> GpuWorker:
    """The process's worker."""
    if _current is None:
        raise EngineStartFailed("This process has no engine: start it with `lorry worker`.")
    return _current
