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

_DEAD = text("""
UPDATE workers SET state = 'dead'
WHERE state IN ('starting', 'ready', 'draining') AND beat_at < now() - make_interval(secs => :lease_s)
  AND pg_postmaster_start_time() < now() - make_interval(secs => :lease_s)
RETURNING id
""")


@dataclass(frozen=True, slots=True)
class Beat:
    """What a worker reports of itself."""

    held: int
    live: int
    residency: dict[str, Any]


def register(session: Session, name: str, deployment: str, host: str, pid: int, capacity: int) -> uuid.UUID:
    """A new incarnation's row."""
    worker_id = new_id()
    session.add(Worker(id=worker_id, name=name, deployment=deployment, host=host, pid=pid, capacity=capacity))
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


def become(session: Session, worker_id: uuid.UUID, state: str) -> bool:
    """Move a living worker's row to `ready`, `draining` or `ended`."""
    moved = session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.state.in_(ALIVE))
        .values(state=state, beat_at=func.now())
        .returning(Worker.id)
    )
    return moved.scalar_one_or_none() is not None


def declare_dead(session: Session, lease_s: float) -> Sequence[uuid.UUID]:
    """Workers silent for a whole lease. Nobody is dead until the database itself has been up that long."""
    return session.scalars(_DEAD, {"lease_s": lease_s}).all()


def holding(session: Session, worker_id: uuid.UUID) -> set[uuid.UUID]:
    """The jobs that the registry believes this worker runs: what it holds beside these was cancelled or taken."""
    return set(session.scalars(select(Job.id).where(Job.worker == worker_id, Job.state == "running")))


def all_workers(session: Session, *, alive_only: bool = True) -> Sequence[Worker]:
    """Worker rows, by deployment and name."""
    query = select(Worker).order_by(Worker.deployment, Worker.name)
    return session.scalars(query.where(Worker.state.in_(ALIVE)) if alive_only else query).all()


def supersede(session: Session, name: str, host: str, pid: int) -> Sequence[uuid.UUID]:
    """A worker of this name starts again on this host: its earlier incarnations are silent from now on, so that the
    dispatcher takes their jobs back at its next look instead of after a lease."""
    return session.scalars(
        update(Worker)
        .where(Worker.name == name, Worker.host == host, Worker.pid != pid, Worker.state.in_(ALIVE))
        .values(beat_at=func.to_timestamp(0))
        .returning(Worker.id)
    ).all()
