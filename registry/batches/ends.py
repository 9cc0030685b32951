"""How a batch ends: asked to stop by its tenant, or counted to the last line by the dispatcher. Guarded UPDATEs.

    in_progress -> finalizing -> completed     every line has ended, none by the window
    in_progress -> expired                     every line has ended, some by the window
    in_progress -> cancelling -> cancelled     the tenant asked; the dispatcher ends the open lines

The dispatcher is the only writer of all arrows but the one to `cancelling`. A trigger refuses every other arrow.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from registry import ids
from registry.batches import outputs
from registry.models import File

OUTPUT_PURPOSE: Final = "batch_output"
CHUNK: Final = 2000
"""Lines measured in one step: some 50 ms."""

_REQUEST_CANCEL = text("""
UPDATE batches SET status = 'cancelling', cancelling_at = clock_timestamp()
WHERE tenant_id = :tenant AND id = :id AND status IN ('validating', 'in_progress')
RETURNING id
""")

_FINALIZE = text("""
UPDATE batches SET status = 'finalizing', finalizing_at = clock_timestamp()
WHERE status = 'in_progress' AND expired = 0 AND succeeded + failed + cancelled + expired = total
RETURNING id
""")

# Small ones first: they need not wait until the files of a large one are measured.
_COUNTED = text("""
SELECT id, tenant_id, status, endpoint, created_at, output_expires_after_s, clock_timestamp() AS now FROM batches
WHERE status IN ('in_progress', 'finalizing', 'cancelling') AND succeeded + failed + cancelled + expired = total
  AND (status <> 'in_progress' OR expired > 0)
ORDER BY total, id LIMIT 1
""")

_ENDS: Final = {"finalizing": "completed", "cancelling": "cancelled", "in_progress": "expired"}
# Only this module's constants enter the statements' text.
_END = {
    status: text(f"""
UPDATE batches SET status = '{end}', {end}_at = clock_timestamp(), output_file_id = :output, error_file_id = :error
WHERE id = :id AND status = '{status}'
RETURNING id
""")  # noqa: S608
    for status, end in _ENDS.items()
}


def request_cancel(session: Session, tenant_id: str, batch_id: uuid.UUID) -> bool:
    """Ask for the end of a batch. False: it is being cancelled already, has ended, or is not this tenant's."""
    moved = session.execute(_REQUEST_CANCEL, {"tenant": tenant_id, "id": batch_id})
    return moved.one_or_none() is not None


def finalize(session: Session) -> Sequence[uuid.UUID]:
    """Let every batch go on whose lines have all ended before their window; their ids."""
    return session.scalars(_FINALIZE).all()


class Ender:
    """Ends batches whose lines are all counted, with their files. Between steps it remembers how much of the files it
    has measured: nothing changes in them any more, and what a crash forgets is measured again.
    """

    def __init__(self, retention: timedelta) -> None:
        self._retention = retention
        self._measures: dict[uuid.UUID, _Measure] = {}

    def step(self, session: Session) -> bool:
        """Measure some lines of one batch, and end it once that was the last. False: there is none to end."""
        batch = session.execute(_COUNTED).one_or_none()
        if batch is None:
            self._measures.clear()
            return False
        measure = self._measures.setdefault(batch.id, _Measure())
        if measure.add(session, batch):
            self._end(session, batch, measure)
            del self._measures[batch.id]
        return True

    def _end(self, session: Session, batch: Row[Any], measure: _Measure) -> None:
        expires_at = batch.created_at + self._retention
        if batch.output_expires_after_s is not None:
            expires_at = min(expires_at, batch.now + timedelta(seconds=batch.output_expires_after_s))
        files = [
            _file(batch, content, size, expires_at) for content, size in measure.bytes.items() if measure.lines[content]
        ]
        ids_of = {file.content: file.id for file in files}
        values = {"id": batch.id, "output": ids_of.get("output"), "error": ids_of.get("error")}
        # A cancel may have come in between: then the batch is looked at again as what it is now.
        if session.execute(_END[batch.status], values).one_or_none() is not None:
            session.add_all(files)
            session.flush()


class _Measure:
    """How much of a batch's two files has been measured."""

    def __init__(self) -> None:
        self.lines: dict[outputs.Content, int] = {"output": 0, "error": 0}
        self.bytes: dict[outputs.Content, int] = {"output": 0, "error": 0}
        self._left: list[outputs.Content] = ["output", "error"]
        self._after = -1

    def add(self, session: Session, batch: Row[Any]) -> bool:
        """Measure up to `CHUNK` lines more. True once there are none."""
        room = CHUNK
        while self._left and room > 0:
            content = self._left[0]
            part = outputs.size(
                session, batch.tenant_id, batch.id, batch.endpoint, content, after=self._after, limit=room
            )
            self.lines[content] += part.lines
            self.bytes[content] += part.bytes
            if part.lines < room:
                self._left.pop(0)
                self._after = -1
            elif part.last_line is not None:
                self._after = part.last_line
            room -= part.lines
        return not self._left


def _file(batch: Row[Any], content: outputs.Content, size_bytes: int, expires_at: datetime) -> File:
    """A file that is a view of the batch's rows."""
    return File(
        id=ids.new_id(),
        tenant_id=batch.tenant_id,
        purpose=OUTPUT_PURPOSE,
        content=content,
        filename=f"{ids.to_wire('batch', batch.id)}_{content}.jsonl",
        bytes=size_bytes,
        batch_id=batch.id,
        expires_at=expires_at,
    )
