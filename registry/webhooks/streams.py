"""A batch's finished lines, cut into numbered chunks for endpoints that asked for results, in the order of their ends.

Lines are cut a second after their end, so that a group that commits late is not overtaken. The end of a batch comes
after all its lines' ends: then every line that no chunk has is cut, wherever it was, and the last chunk says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.webhooks.event_types import RESULTS

MAX_LINES: Final = 100
MAX_BYTES: Final = 950_000
"""Of the lines, as they will be written; the envelope and a margin make the megabyte."""
FLUSH_S: Final = 3.0
"""A chunk that is not full goes when its oldest line has waited this long."""
LATE_S: Final = 1.0
_LINE_OVERHEAD: Final = 1400
"""What a line has beside its output, custom id and metadata: ids, names, times, usage and timing."""
STREAMS_A_PASS: Final = 50
_LINES_A_PASS: Final = 1000

Place: TypeAlias = tuple[uuid.UUID, uuid.UUID]
"""A stream in the order of passes: its batch and endpoint."""
START: Final = (uuid.UUID(int=0), uuid.UUID(int=0))

_OPEN = text("""
SELECT s.endpoint_id, s.batch_id, s.tenant_id, s.chunks, s.cursor_at, s.cursor_line, e.disabled_at IS NOT NULL AS off,
    b.status IN ('completed', 'failed', 'expired', 'cancelled') AS ended
FROM webhook_streams s JOIN webhook_endpoints e ON e.id = s.endpoint_id JOIN batches b ON b.id = s.batch_id
WHERE (s.batch_id, s.endpoint_id) > (:batch, :endpoint)
    AND (b.status IN ('completed', 'failed', 'expired', 'cancelled') OR EXISTS (
        SELECT FROM jobs j WHERE j.batch_id = s.batch_id AND j.finished_at IS NOT NULL
            AND (j.finished_at, j.line_no) > (coalesce(s.cursor_at, '-infinity'), coalesce(s.cursor_line, 0))))
ORDER BY s.batch_id, s.endpoint_id LIMIT :streams FOR UPDATE OF s SKIP LOCKED
""")

_READY = """
SELECT j.line_no, j.finished_at, :overhead + coalesce(octet_length(to_json(o.text)::text), 0)
    + coalesce(octet_length(to_json(j.custom_id)::text), 0)
    + coalesce(octet_length((i.body -> 'metadata')::text), 0) + coalesce(octet_length(j.error_message), 0) AS bytes,
    j.finished_at < clock_timestamp() - make_interval(secs => :flush_s) AS due
FROM jobs j
LEFT JOIN job_outputs o ON o.day = (j.created_at AT TIME ZONE 'UTC')::date AND o.job_id = j.id
LEFT JOIN job_inputs i ON i.day = (j.created_at AT TIME ZONE 'UTC')::date AND i.job_id = j.id
WHERE j.batch_id = :batch AND j.finished_at IS NOT NULL AND {which}
ORDER BY j.finished_at, j.line_no LIMIT :lines
"""
_AFTER_CURSOR = text(
    _READY.format(
        which="""(j.finished_at, j.line_no) > (coalesce(cast(:cursor_at AS timestamptz), '-infinity'), :cursor_line)
    AND (:ended OR j.finished_at < clock_timestamp() - make_interval(secs => :late_s))"""
    )
)
_IN_NO_CHUNK = text(
    _READY.format(
        which="""NOT EXISTS (SELECT FROM (
        SELECT unnest(d.lines) AS line FROM webhook_deliveries d
        WHERE d.endpoint_id = :endpoint AND d.subject = :batch AND d.chunk_no IS NOT NULL) AS cut
        WHERE cut.line = j.line_no)"""
    )
)
_CUT = text("""
INSERT INTO webhook_deliveries (tenant_id, endpoint_id, type, subject, lane, chunk_no, lines, is_last, state)
VALUES (:tenant, :endpoint, :type, :batch, cast(:endpoint AS text), :chunk_no, :lines, :is_last, :state)
""")
_ADVANCE = text("""
UPDATE webhook_streams SET chunks = :chunks, cursor_at = :cursor_at, cursor_line = :cursor_line
WHERE endpoint_id = :endpoint AND batch_id = :batch
""")
_COUNT = text("UPDATE webhook_streams SET chunks = :chunks WHERE endpoint_id = :endpoint AND batch_id = :batch")
_END = text("DELETE FROM webhook_streams WHERE endpoint_id = :endpoint AND batch_id = :batch")


@dataclass(frozen=True, slots=True)
class _Ready:
    line_no: int
    finished_at: datetime
    bytes: int
    due: bool


def cut(session: Session, after: Place) -> Place:
    """Cut what is ready of the open streams after a place, some thousand lines at most; the place to go on from, so
    that old streams that never end keep no new one waiting."""
    values = {"streams": STREAMS_A_PASS, "batch": after[0], "endpoint": after[1]}
    found = session.execute(_OPEN, values).all()
    for stream in found:
        _Stream(session, stream).cut()
    return (found[-1].batch_id, found[-1].endpoint_id) if len(found) == STREAMS_A_PASS else START


def grouped(ready: Sequence[_Ready]) -> Iterator[list[_Ready]]:
    """Chunks of lines in their order, none over `MAX_LINES` or, unless it is a single line, `MAX_BYTES`."""
    group: list[_Ready] = []
    size = 0
    for line in ready:
        if group and (len(group) == MAX_LINES or size + line.bytes > MAX_BYTES):
            yield group
            group, size = [], 0
        group.append(line)
        size += line.bytes
    if group:
        yield group


class _Stream:
    """One endpoint's share of one batch."""

    def __init__(self, session: Session, row: Any) -> None:
        self._session = session
        self._row = row
        self._chunks: int = row.chunks

    def cut(self) -> int:
        """Deliveries for the lines that are ready; the stream ends with its batch."""
        row = self._row
        after = {"cursor_at": row.cursor_at, "cursor_line": row.cursor_line or 0, "ended": row.ended, "late_s": LATE_S}
        ready = self._ready(_AFTER_CURSOR, **after)
        if row.ended and len(ready) < _LINES_A_PASS:
            return self._finish()
        groups = list(grouped(ready))
        # An open group may still grow; it waits until it is full or its oldest line has waited long enough.
        if groups and not row.ended and not groups[-1][0].due and len(groups[-1]) < MAX_LINES:
            groups.pop()
        for group in groups:
            self._add(group)
        if groups:
            last = groups[-1][-1]
            cursor = {"cursor_at": last.finished_at, "cursor_line": last.line_no, "chunks": self._chunks}
            self._session.execute(_ADVANCE, {**self._key, **cursor})
        return len(groups)

    def _finish(self) -> int:
        """The batch has ended: cut what is in no chunk, also lines that were overtaken, and mark the last chunk."""
        rest = self._ready(_IN_NO_CHUNK)
        complete = len(rest) < _LINES_A_PASS
        groups = list(grouped(rest)) or [[]]
        for group in groups[:-1]:
            self._add(group)
        self._add(groups[-1], is_last=complete)
        if complete:
            self._session.execute(_END, self._key)
        else:
            self._session.execute(_COUNT, {**self._key, "chunks": self._chunks})
        return len(groups)

    @property
    def _key(self) -> dict[str, uuid.UUID]:
        return {"endpoint": self._row.endpoint_id, "batch": self._row.batch_id}

    def _ready(self, query: Any, **values: Any) -> list[_Ready]:
        limits = {"overhead": _LINE_OVERHEAD, "flush_s": FLUSH_S, "lines": _LINES_A_PASS}
        return [_Ready(*row) for row in self._session.execute(query, {**self._key, **limits, **values})]

    def _add(self, group: list[_Ready], *, is_last: bool = False) -> None:
        self._chunks += 1
        values = {
            **self._key,
            "tenant": self._row.tenant_id,
            "type": RESULTS,
            "chunk_no": self._chunks,
            "lines": [line.line_no for line in group],
            "is_last": is_last,
            "state": "exhausted" if self._row.off else "pending",
        }
        self._session.execute(_CUT, values)
