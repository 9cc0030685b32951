"""Purging on request: what has ended loses its texts at once. Usage stays: it was counted when the job ended.

Nothing that is open is purged: it is cancelled first, by its tenant, so that no one wonders what became of it.
"""

from __future__ import annotations

import uuid

from sqlalchemy import delete, select, text
from sqlalchemy.orm import Session

from registry.errors import NotEnded, NotFound
from registry.models import Batch, File, Job
from registry.models.batches import BATCH_ENDS

_TABLES = ("job_inputs", "job_outputs")
_OF_JOB = "id = :id"
_OF_BATCH = "batch_id = :id"


def purge_job(session: Session, tenant_id: str, job_id: uuid.UUID) -> None:
    """Delete an ended job. A line of a batch loses its texts and stays, so that the batch's counts add up.

    Raises NotFound, NotEnded.
    """
    mine = (Job.tenant_id == tenant_id, Job.id == job_id)
    job = session.execute(select(Job.finished_at, Job.batch_id, Job.waits_for_parts).where(*mine)).one_or_none()
    if job is None:
        raise NotFound("No such job: check the id.")
    if job.finished_at is None or job.waits_for_parts:  # its parts are stopped within a second
        raise NotEnded("The job has not ended; cancel it first, then delete it.")
    _purge_texts(session, tenant_id, _OF_JOB, job_id)
    if job.batch_id is None:
        session.execute(delete(Job).where(*mine))


def purge_batch(session: Session, tenant_id: str, batch_id: uuid.UUID) -> None:
    """Delete an ended batch with its lines, texts, output and error file. An uploaded input file stays: it has a DELETE
    of its own. Raises NotFound, NotEnded.
    """
    mine = (Batch.tenant_id == tenant_id, Batch.id == batch_id)
    status = session.scalar(select(Batch.status).where(*mine))
    if status is None:
        raise NotFound("No such batch: check the id.")
    if status not in BATCH_ENDS:
        raise NotEnded("The batch has not ended; cancel it first, then delete it.")
    _purge_texts(session, tenant_id, _OF_BATCH, batch_id)
    session.execute(delete(Job).where(Job.tenant_id == tenant_id, Job.batch_id == batch_id))
    session.execute(delete(File).where(File.tenant_id == tenant_id, File.batch_id == batch_id))
    session.execute(delete(Batch).where(*mine))


def _purge_texts(session: Session, tenant_id: str, which: str, wanted: uuid.UUID) -> None:
    """Before the jobs go: they say on which days their texts lie. One day at a time touches that day's table only."""
    values = {"tenant": tenant_id, "id": wanted}
    chosen = f"FROM jobs WHERE tenant_id = :tenant AND {which}"
    days = session.scalars(text(f"SELECT DISTINCT (created_at AT TIME ZONE 'UTC')::date {chosen}"), values).all()
    for day in days:
        for table in _TABLES:
            statement = f"DELETE FROM {table} WHERE day = :day AND job_id IN (SELECT id {chosen})"  # noqa: S608
            session.execute(text(statement), values | {"day": day})
