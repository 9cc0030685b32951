"""What tests of whole processes share: jobs of two tenants, a worker that is busy, and that all finished once."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import text

from registry.models import Job
from tests.e2e.crew import Crew, Member, eventually
from tests.world import World

SLOW_MS = "20"
"""A step of the fake engine's, as its setting takes it."""


def submit(world: World, count: int) -> list[uuid.UUID]:
    """Jobs of two tenants, of 16 tokens each."""
    for tenant in ("acme", "globex"):
        world.adapter(tenant)
    return [world.job(("acme", "globex")[n % 2], model="tickets") for n in range(count)]


def busy(crew: Crew, member: Member) -> None:
    """Wait until this worker has jobs in its engine."""
    eventually(lambda: crew.worker_row(member).get("live", 0) > 0)


def swap_of(job: Job) -> dict[str, Any]:
    """What an ended job's timing says of its adapter."""
    assert job.timing is not None
    swap: dict[str, Any] = job.timing["swap"]
    return swap


def all_once(crew: Crew, jobs: list[uuid.UUID]) -> None:
    """The checker: everything acknowledged has succeeded, with one output and one tally each."""
    crew.finished(len(jobs))
    assert crew.states() == {"succeeded": len(jobs)}
    assert set(crew.outputs()) == set(jobs)
    with crew.db.transaction() as session:
        counted = session.scalar(
            text(
                "SELECT (SELECT coalesce(sum(succeeded), 0) FROM tallies)"
                " + (SELECT coalesce(sum(succeeded), 0) FROM usage_days)"
            )
        )
    assert counted == len(jobs)
