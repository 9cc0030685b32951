"""The Celery tasks: each takes ids, hands over, and waits. A task never raises: its job's row says how it ended."""

from __future__ import annotations

from registry import ids
from registry.queues import RUN_JOB, celery_app
from workers import gpu


@celery_app.task(name=RUN_JOB, ignore_result=True)  # type: ignore[untyped-decorator]
def run_job(wire_id: str) -> None:
    """Run one job to its written ending."""
    gpu.current().run(ids.from_wire("job", wire_id))
