"""What of a batch has ended, line by line as a job is shown, while the batch still runs or after it.

Each line carries a cursor; a reader that was cut off, or that comes again later, asks for what follows its last cursor.

- `input`: by line number, up to the first line that has not ended, so that one which ends later is never passed over.
- `completion`: in the order of commits. The transaction that ended a line is its row's last writer (`xmin`); only lines
  of transactions older than every unfinished one are shown. A clock would not do: a line that was stamped earlier may
  be committed later, behind the reader's back.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

from pydantic import BaseModel
from sqlalchemy import Row, select, text
from sqlalchemy.orm import Session

from registry import jobs
from registry.db import Database
from registry.errors import InvalidField
from registry.models import BadLine, Job
from registry.shapes import JobError, JobView, job_view
from registry.states import TERMINAL

Order = Literal["input", "completion"]

PAGE_LINES: Final = 256
_CURSORS: Final = {"input": re.compile(r"i(\d{1,9})"), "completion": re.compile(r"c(\d{1,20})\.(\d{1,9})")}

# A row shows the low half of its writer's number; the high half is the horizon's, one less after a wrap.
_FINISHED = text("""
SELECT writer, line_no FROM (
    SELECT line_no, horizon - ((horizon - xmin::text::bigint) & 4294967295) AS writer,
           (horizon - xmin::text::bigint) & 4294967295 BETWEEN 1 AND 2147483647 AS settled
    FROM jobs, (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon) AS snapshot
    WHERE tenant_id = :tenant AND batch_id = :batch AND finished_at IS NOT NULL
    UNION ALL SELECT line_no, 0, true FROM batch_bad_lines WHERE tenant_id = :tenant AND batch_id = :batch
) AS ended
WHERE settled AND (writer, line_no) > (:writer, :line) ORDER BY writer, line_no
""")


class ResultLine(JobView):
    """A job of the batch that has ended. `line` counts from 1 in the input; `cursor` is where to go on from."""

    line: int
    cursor: str


class RefusedLine(BaseModel):
    """A line that was refused at submission (`on_bad_line: skip`)."""

    id: None = None
    object: Literal["refused_line"] = "refused_line"
    status: Literal["failed"] = "failed"
    custom_id: str | None
    error: JobError
    line: int
    cursor: str


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader has come: the last line's number, and in order of completion its writer."""

    order: Order
    line: int = -1
    writer: int = -1

    @classmethod
    def of(cls, order: Order, cursor: str | None) -> Place:
        """The place of a cursor. Raises InvalidField for one that is not of this order."""
        if cursor is None:
            return cls(order)
        match = _CURSORS[order].fullmatch(cursor)
        if match is None:
            raise InvalidField("`after` is the `cursor` of a line that came in the same order.", param="after")
        numbers = [int(number) for number in match.groups()]
        if max(numbers) >= 2**63:
            raise InvalidField("`after` is the `cursor` of a line that came in the same order.", param="after")
        return cls(order, numbers[-1], numbers[0] if order == "completion" else -1)

    @property
    def cursor(self) -> str:
        """The wire form."""
        return f"i{self.line}" if self.order == "input" else f"c{self.writer}.{self.line}"


def stream(database: Database, tenant_id: str, batch_id: uuid.UUID, after: Place, limit: int | None) -> Iterator[bytes]:
    """Lines as NDJSON, a page at a time, each page in a short transaction of its own."""
    pages = _in_order if after.order == "input" else _as_completed
    left = limit
    for page in pages(database, tenant_id, batch_id, after):
        page = page if left is None else page[:left]
        if page:
            yield b"".join(line.model_dump_json().encode() + b"\n" for line in page)
        if left is not None and (left := left - len(page)) <= 0:
            return


Page = list[ResultLine | RefusedLine]


def _in_order(database: Database, tenant_id: str, batch_id: uuid.UUID, after: Place) -> Iterator[Page]:
    line_no = after.line
    while True:
        with database.transaction(tenant_id) as session:
            rows = _numbered(session, tenant_id, batch_id, line_no)
        page: Page = []
        for row in rows:
            if isinstance(row, Row) and row.state not in TERMINAL:
                yield page
                return
            page.append(_line(row, Place("input", row.line_no).cursor))
        yield page
        if len(rows) < PAGE_LINES:
            return
        line_no = rows[-1].line_no


def _as_completed(database: Database, tenant_id: str, batch_id: uuid.UUID, after: Place) -> Iterator[Page]:
    values = {"tenant": tenant_id, "batch": batch_id, "writer": after.writer, "line": after.line}
    with database.transaction(tenant_id) as session:
        keys = iter([(row.writer, row.line_no) for row in session.execute(_FINISHED, values)])
    while chunk := list(islice(keys, PAGE_LINES)):
        with database.transaction(tenant_id) as session:
            rows = {row.line_no: row for row in _chosen(session, tenant_id, batch_id, [line for _, line in chunk])}
        # A line that was purged meanwhile is not there any more.
        yield [_line(rows[line], Place("completion", line, writer).cursor) for writer, line in chunk if line in rows]


def _numbered(session: Session, tenant_id: str, batch_id: uuid.UUID, after: int) -> list[Any]:
    """The next lines by number, ended or not, refused ones in their places; at most a page."""
    accepted = session.execute(
        _views(tenant_id, batch_id).where(Job.line_no > after).order_by(Job.line_no).limit(PAGE_LINES)
    ).all()
    refused = session.scalars(
        _refused(tenant_id, batch_id).where(BadLine.line_no > after).order_by(BadLine.line_no).limit(PAGE_LINES)
    ).all()
    return sorted([*accepted, *refused], key=lambda row: row.line_no)[:PAGE_LINES]


def _chosen(session: Session, tenant_id: str, batch_id: uuid.UUID, lines: Sequence[int]) -> list[Any]:
    accepted = session.execute(_views(tenant_id, batch_id).where(Job.line_no.in_(lines))).all()
    refused = session.scalars(_refused(tenant_id, batch_id).where(BadLine.line_no.in_(lines))).all()
    return [*accepted, *refused]


def _views(tenant_id: str, batch_id: uuid.UUID) -> Any:
    return jobs.select_views(tenant_id).add_columns(Job.line_no).where(Job.batch_id == batch_id)


def _refused(tenant_id: str, batch_id: uuid.UUID) -> Any:
    return select(BadLine).where(BadLine.tenant_id == tenant_id, BadLine.batch_id == batch_id)


def _line(row: Any, cursor: str) -> ResultLine | RefusedLine:
    if isinstance(row, BadLine):
        error = JobError(code=row.code, message=row.message)
        return RefusedLine(custom_id=row.custom_id, error=error, line=row.line_no, cursor=cursor)
    # The view is checked already; checking it again for each of 50,000 lines would double their cost.
    return ResultLine.model_construct(**dict(job_view(row)), line=row.line_no, cursor=cursor)
