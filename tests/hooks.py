"""Builds what a webhook test's story needs: endpoints, jobs and batches that end; shows what became of deliveries."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import select, text

from registry import transitions
from registry.db import Database
from registry.ids import new_id
from registry.models import Batch, Job, WebhookDelivery, WebhookEndpoint
from registry.secrets import SecretBox
from registry.webhooks import endpoints
from registry.webhooks.endpoints import Wishes
from tests.world import World

JOB_EVENTS = ("job.succeeded", "job.failed", "job.cancelled", "job.expired")
BATCH_EVENTS = ("batch.completed", "batch.failed", "batch.expired", "batch.cancelled")
COLUMNS = {"completed": "succeeded", "failed": "failed", "cancelled": "cancelled", "expired": "expired"}


class Hooks:
    """Everything here commits."""

    def __init__(self, world: World, box: SecretBox) -> None:
        self.world = world
        self.db: Database = world.db
        self.box = box
        self._worker: uuid.UUID | None = None

    def endpoint(
        self,
        url: str = "https://hooks.example/x",
        events: tuple[str, ...] = JOB_EVENTS,
        *,
        tenant: str = "acme",
        **wishes: str,
    ) -> tuple[uuid.UUID, str]:
        """A new endpoint's id and secret."""
        self.world.tenant(tenant)
        with self.db.transaction() as session:
            row, secret = endpoints.create(session, self.box, tenant, Wishes("test", url, events, **wishes))
            return row.id, secret

    def inline(self, tenant: str = "acme") -> tuple[uuid.UUID, str]:
        """The tenant's inline endpoint and a secret of it."""
        self.world.tenant(tenant)
        with self.db.transaction() as session:
            endpoints.ensure_inline(session, self.box, tenant)
            found = session.scalars(select(WebhookEndpoint.id).where(WebhookEndpoint.kind == "inline")).one()
            return found, endpoints.rotate(session, self.box, tenant, found, keep_old=False)[1]

    def finished_job(self, answer: str = "A short answer.", tenant: str = "acme", **fields: Any) -> uuid.UUID:
        """A job that has succeeded."""
        job_id = self.world.job(tenant, **fields)
        self._run([job_id], answer)
        return job_id

    def cancelled_job(self, tenant: str = "acme", **fields: Any) -> uuid.UUID:
        """A job that was cancelled while it waited."""
        job_id = self.world.job(tenant, **fields)
        with self.db.transaction() as session:
            assert transitions.cancel(session, tenant, job_id)
        return job_id

    def batch(self, lines: int, tenant: str = "acme", **columns: Any) -> tuple[uuid.UUID, list[uuid.UUID]]:
        """A batch in progress and its queued jobs, in the order of its lines."""
        jobs = [self.world.job(tenant) for _ in range(lines)]
        batch_id = new_id()
        with self.db.transaction() as session:
            row = {"source": "ndjson", "endpoint": "/v1/jobs", "completion_window": "24h", "total": lines, **columns}
            session.add(Batch(id=batch_id, tenant_id=tenant, status="in_progress", **row))
            session.flush()
            for number, job_id in enumerate(jobs, 1):
                line = session.get_one(Job, job_id)
                line.batch_id, line.line_no, line.notify = batch_id, number, False
        return batch_id, jobs

    def run(self, jobs: list[uuid.UUID], answer: str = "A short answer.") -> None:
        """Let these jobs succeed at one moment, long enough ago for a stream to cut them."""
        self._run(jobs, answer)
        with self.db.transaction() as session:
            long_ago = text("UPDATE jobs SET finished_at = now() - interval '10 s' WHERE id = ANY(:ids)")
            session.execute(long_ago, {"ids": jobs})

    def end_batch(self, batch_id: uuid.UUID, status: str = "completed") -> None:
        """What the fold and the dispatcher do when a batch's last line has ended."""
        with self.db.transaction() as session:
            total = session.get_one(Batch, batch_id).total
            for step in ["finalizing", status] if status == "completed" else ["cancelling", status]:
                at = text("now()")
                values = {"status": step, f"{step}_at": at, COLUMNS[status]: total}
                session.execute(Batch.__table__.update().where(Batch.id == batch_id).values(values))  # type: ignore[attr-defined]

    def deliveries(self, endpoint_id: uuid.UUID | None = None) -> list[WebhookDelivery]:
        """All deliveries, or an endpoint's, in the order of their ids."""
        query = select(WebhookDelivery).order_by(WebhookDelivery.id)
        if endpoint_id is not None:
            query = query.where(WebhookDelivery.endpoint_id == endpoint_id)
        with self.db.transaction() as session:
            return list(session.scalars(query))

    def row(self, endpoint_id: uuid.UUID) -> WebhookEndpoint:
        """The endpoint's row as it is now."""
        with self.db.transaction() as session:
            return session.get_one(WebhookEndpoint, endpoint_id)

    def sql(self, statement: str, **values: Any) -> None:
        """One statement, committed."""
        with self.db.transaction() as session:
            session.execute(text(statement), values)

    def _run(self, jobs: list[uuid.UUID], answer: str) -> None:
        if self._worker is None:
            self._worker = self.world.worker()
        wanted = set(jobs)
        self.world.pick(100_000)
        claimed = self.world.claim(self._worker, [job for job in jobs if job in wanted])
        outcomes = [
            transitions.Outcome(
                job.job_id, job.fence, "succeeded", text=answer, finish_reason="stop", prompt_tokens=5, output_tokens=3
            )
            for job in claimed
        ]
        with self.db.transaction() as session:
            assert transitions.settle(session, outcomes) == wanted
