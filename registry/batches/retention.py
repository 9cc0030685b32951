"""Forgetting by age: days of texts are dropped as tables, rows go in chunks, uploaded files leave the disk.

Called by the dispatcher, a small step at a time, so that no statement is long. Usage by day is kept.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.orm import Session

CHUNK = 5000

# What the default tables caught, for days that nobody made a table for.
_TEXTS = tuple(
    text(f"""
WITH gone AS (
    DELETE FROM {table} WHERE (day, job_id) IN (SELECT day, job_id FROM {table} WHERE day < :day LIMIT :chunk)
    RETURNING 1)
SELECT count(*) FROM gone
""")  # noqa: S608
    for table in ("job_inputs", "job_outputs")
)

# Ids grow with time (version 7), so the oldest rows are at the left edge of the primary key.
_JOBS = text("""
WITH gone AS (DELETE FROM jobs WHERE id IN (
    SELECT j.id FROM jobs j LEFT JOIN batches b ON b.id = j.batch_id
    WHERE j.id < :newest AND j.finished_at IS NOT NULL AND j.created_at < :before
      AND (b.id IS NULL OR b.status IN ('failed', 'completed', 'expired', 'cancelled'))
    ORDER BY j.id LIMIT :chunk) RETURNING 1)
SELECT count(*) FROM gone
""")
_BATCHES = text("""
WITH gone AS (DELETE FROM batches WHERE id IN (
    SELECT b.id FROM batches b
    WHERE b.id < :newest AND b.created_at < :before AND b.status IN ('failed', 'completed', 'expired', 'cancelled')
      AND NOT EXISTS (SELECT FROM jobs j WHERE j.batch_id = b.id)
    ORDER BY b.id LIMIT :chunk) RETURNING 1)
SELECT count(*) FROM gone
""")
# An input is kept while a batch of it is open, whatever its age.
_FILES = text("""
DELETE FROM files WHERE id IN (
    SELECT f.id FROM files f
    WHERE (f.expires_at < now() OR f.id < :newest AND f.created_at < :before)
      AND NOT EXISTS (SELECT FROM batches b WHERE (b.input_file_id = f.id OR b.id = f.batch_id)
                      AND b.status IN ('validating', 'in_progress', 'finalizing', 'cancelling'))
    ORDER BY f.id LIMIT :chunk)
RETURNING path
""")


def drop_days(session: Session, retention_days: int) -> int:
    """Drop the tables of texts older than that; how many. None while somebody reads from one: ask again later."""
    before = text("SELECT lorry_drop_days((now() AT TIME ZONE 'UTC')::date - :days)")
    dropped = session.scalar(before, {"days": retention_days})
    return int(dropped or 0)


def delete_rows(session: Session, retention_days: int) -> tuple[bool, list[Path]]:
    """Delete a chunk of each kind of old row: whether more may be left, and the files to `unlink` after the commit.

    A job or batch that is open is never deleted. The rows go first: a file without a row harms nobody.
    """
    before = session.execute(text("SELECT now()")).scalar_one() - timedelta(days=retention_days)
    values = {"before": before, "newest": _first_id(before), "day": before.astimezone(UTC).date(), "chunk": CHUNK}
    deleted = [session.execute(statement, values).scalar_one() for statement in (_JOBS, _BATCHES, *_TEXTS)]
    paths = session.scalars(_FILES, values).all()
    return max(*deleted, len(paths)) >= CHUNK, [Path(path) for path in paths if path is not None]


def unlink(paths: list[Path]) -> None:
    """Remove files from the disk; those that are gone already are no error."""
    for path in paths:
        path.unlink(missing_ok=True)


def _first_id(moment: datetime) -> uuid.UUID:
    """No id made at this moment or later is smaller."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)
