"""Running the lines of a batch again that did not succeed: a new batch, linked to the old one.

The texts are copied inside the database. Lines keep their numbers and custom ids. A line runs with the adapter version
it was pinned to; if that one is retired or quarantined, with what its `model` means now. Lines refused at submission
are not run again: their texts were not kept.
"""

from __future__ import annotations

import uuid

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from registry import adapters, ids
from registry.errors import NotEnded, NotFound, NothingToRerun
from registry.models import Batch
from registry.models.batches import BATCH_ENDS

_DAY = "(j.created_at AT TIME ZONE 'UTC')::date"
_LEFT = f"""
FROM jobs j LEFT JOIN tenant_adapters a ON a.tenant_id = j.tenant_id AND a.adapter_id = j.adapter_id
WHERE j.tenant_id = :tenant AND j.batch_id = :old AND j.state IN ('failed', 'cancelled', 'expired')
  AND EXISTS (SELECT FROM job_inputs i WHERE i.day = {_DAY} AND i.job_id = j.id)
"""
_COUNT = text(
    f"SELECT count(*) AS lines, array_agg(DISTINCT j.model) FILTER (WHERE a.state <> 'ready') AS models {_LEFT}"
)

# One statement, each text looked up by its key: what is new has no statistics yet that a join could be planned by.
_COPY = text(f"""
WITH line AS MATERIALIZED (
    SELECT uuidv7() AS id, j.tenant_id, j.deployment, j.adapter_id, j.model, j.priority, j.line_no, j.custom_id,
           a.state <> 'ready' AS is_gone,
           (SELECT i.body - 'reduced' FROM job_inputs i WHERE i.day = {_DAY} AND i.job_id = j.id) AS body
    {_LEFT}
), put AS (
    INSERT INTO jobs (id, tenant_id, deployment, adapter_id, model, priority, deadline, batch_id, line_no, custom_id)
    SELECT line.id, tenant_id, coalesce(again.deployment, line.deployment),
           coalesce(again.adapter_id, line.adapter_id), line.model, priority, :deadline, :new, line_no, custom_id
    FROM line LEFT JOIN unnest(cast(:models AS text[]), cast(:adapters AS integer[]), cast(:deployments AS text[]))
        AS again (model, adapter_id, deployment) ON again.model = line.model AND line.is_gone
    ORDER BY line_no
)
INSERT INTO job_inputs (day, job_id, tenant_id, body)
SELECT (now() AT TIME ZONE 'UTC')::date, id, tenant_id, body FROM line
""")  # noqa: S608


def rerun(session: Session, tenant_id: str, batch_id: uuid.UUID) -> uuid.UUID:
    """Submit the failed, expired and cancelled lines of an ended batch as a new batch; its id.

    Raises NotFound, NotEnded, NothingToRerun, and AdapterUnavailable or ModelNotFound for a line whose pinned version
    is gone and whose `model` has no other: activate one and ask again.
    """
    old = session.scalars(select(Batch).where(Batch.tenant_id == tenant_id, Batch.id == batch_id)).one_or_none()
    if old is None:
        raise NotFound("No such batch: check the id.")
    if old.status not in BATCH_ENDS:
        raise NotEnded("The batch has not ended; its lines can be run again once it has.")
    left = session.execute(_COUNT, {"tenant": tenant_id, "old": batch_id}).one()
    if left.lines == 0:
        raise NothingToRerun("No line failed, expired or was cancelled, or the texts of those lines are gone.")
    new = _add_batch(session, old, left.lines)
    again = [adapters.resolve(session, tenant_id, model) for model in left.models or ()]
    values = {
        "tenant": tenant_id,
        "old": batch_id,
        "new": new.id,
        "deadline": new.expires_at,
        "models": list(left.models or ()),
        "adapters": [found.adapter.adapter_id if found.adapter else None for found in again],
        "deployments": [found.deployment for found in again],
    }
    session.execute(_COPY, values)
    return new.id


def _add_batch(session: Session, old: Batch, lines: int) -> Batch:
    now = session.execute(select(func.now())).scalar_one()
    window = old.expires_at - old.created_at if old.expires_at else None
    new = Batch(
        id=ids.new_id(),
        tenant_id=old.tenant_id,
        source="rerun",
        endpoint=old.endpoint,
        status="in_progress",
        completion_window=old.completion_window,
        on_bad_line=old.on_bad_line,
        input_file_id=old.input_file_id,
        output_expires_after_s=old.output_expires_after_s,
        rerun_of=old.id,
        model=old.model,
        metadata_=old.metadata_,
        webhook_url=old.webhook_url,
        total=lines,
        created_at=now,
        in_progress_at=now,
        expires_at=now + window if window else None,
    )
    session.add(new)
    session.flush()
    return new
