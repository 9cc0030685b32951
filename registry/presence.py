"""Worker rows: who is there, by the database's clock. Liveness is the row's, never a job's."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from registry.ids import new_id
from registry.models import Job, Worker

ALIVE = ("starting", "ready", "draining")

_LONG_AGO = func.to_timestamp(0)

_SILENT = """
state IN ('starting', 'ready', 'draining') AND beat_at < now() - make_interval(secs => :lease_s)
  AND pg_postmaster_start_time() < now() - make_interval(secs => :lease_s)
"""
# Only this module's constants enter the statements' text; a caller's values are bound parameters.
_SILENT_ONES = text(f"SELECT id FROM workers WHERE {_SILENT} ORDER BY beat_at")  # noqa: S608
_DECLARE_DEAD = text(f"UPDATE workers SET state = 'dead' WHERE id = :worker AND {_SILENT} RETURNING id")  # noqa: S608


@dataclass(frozen=True, slots=True)
class Beat:
    """What a worker reports of itself."""

    held: int
    live: int
    residency: dict[str, Any]


def register(
    session: Session,
    name: str,
    deployment: str,
    host: str,
    pid: int,
    capacity: int,
    sizing: dict[str, Any] | None = None,
) -> uuid.UUID:
    """A new incarnation's row. `sizing`: how its slots were counted, where the deployment says `auto`."""
    worker_id = new_id()
    row = Worker(id=worker_id, name=name, deployment=deployment, host=host, pid=pid, capacity=capacity, sizing=sizing)
    session.add(row)
    session.flush()
    return worker_id


def beat(session: Session, worker_id: uuid.UUID, report: Beat) -> bool:
    """Say "I live". False means that this incarnation was declared dead: abort all, register anew."""
    beaten = session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.state.in_(ALIVE))
        .values(beat_at=func.now(), held=report.held, live=report.live, residency=report.residency)
        .returning(Worker.id)
    )
    return beaten.scalar_one_or_none() is not None


def asked_to_drain(session: Session, worker_id: uuid.UUID) -> bool:
    """Whether an operator wants this incarnation to hand back, finish and exit."""
    return session.scalar(select(Worker.drain_requested_at).where(Worker.id == worker_id)) is not None


def become(session: Session, worker_id: uuid.UUID, state: str) -> bool:
    """Move a living worker's row to `starting` (again), `ready`, `draining` or `ended`."""
    moved = session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.state.in_(ALIVE))
        .values(state=state, beat_at=func.now())
        .returning(Worker.id)
    )
    return moved.scalar_one_or_none() is not None


def silent(session: Session, lease_s: float) -> Sequence[uuid.UUID]:
    """Workers without a beat for a whole lease. Nobody is silent until the server itself has been up that long."""
    return session.scalars(_SILENT_ONES, {"lease_s": lease_s}).all()


def declare_dead(session: Session, worker_id: uuid.UUID, lease_s: float) -> bool:
    """Declare a silent worker dead. False: it is not silent any more."""
    found = session.execute(_DECLARE_DEAD, {"worker": worker_id, "lease_s": lease_s})
    return found.scalar_one_or_none() is not None


def holding(session: Session, worker_id: uuid.UUID) -> dict[uuid.UUID, int]:
    """The jobs that the registry believes this worker runs, with their fences: what it holds beside these was cancelled
    or taken."""
    rows = session.execute(select(Job.id, Job.fence).where(Job.worker == worker_id, Job.state == "running"))
    return {row.id: row.fence for row in rows}


def all_workers(session: Session, *, alive_only: bool = True) -> Sequence[Worker]:
    """Worker rows, by deployment and name."""
    query = select(Worker).order_by(Worker.deployment, Worker.name)
    return session.scalars(query.where(Worker.state.in_(ALIVE)) if alive_only else query).all()


def supersede(session: Session, name: str, host: str) -> Sequence[uuid.UUID]:
    """A worker of this name starts again on this host, in a container with the same pid even: its earlier incarnations
    are silent from now on, so that the dispatcher takes their jobs back at its next look instead of after a lease."""
    return session.scalars(
        update(Worker)
        .where(Worker.name == name, Worker.host == host, Worker.state.in_(ALIVE))
        .values(beat_at=_LONG_AGO)
        .returning(Worker.id)
    ).all()
