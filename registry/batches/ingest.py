"""Storing a batch's jobs: two COPYs in the caller's transaction, so that a batch is there whole or not at all.

COPY is refused under row-level security, so that these statements run as `lorry_ingest`, which may insert and no more.
The tenant is the caller's argument, never the line's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from psycopg.types.json import set_json_dumps
from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.adapters import Resolved
from registry.batches.spool import Spool
from registry.db import INGEST_ROLE

PRIORITY: Final = 1
"""Behind the tenant's single jobs, for which somebody may be waiting."""
_COPY_JOBS: Final = (
    "COPY jobs (id, tenant_id, deployment, adapter_id, model, priority, deadline, batch_id, line_no, custom_id,"
    " notify)"
    " FROM STDIN (FORMAT BINARY)"
)
_JOB_TYPES: Final = (
    "uuid", "text", "text", "int4", "text", "int2", "timestamptz", "uuid", "int4", "text", "bool"
)  # fmt: skip
_COPY_INPUTS: Final = "COPY job_inputs (day, job_id, tenant_id, body) FROM STDIN (FORMAT BINARY)"
_INPUT_TYPES: Final = ("date", "uuid", "text", "jsonb")
TIMEOUT_S: Final = 300


def ingest(
    session: Session,
    tenant_id: str,
    batch_id: uuid.UUID,
    spool: Spool,
    resolved: list[Resolved],
    created_at: datetime,
    deadline: datetime,
    *,
    notify: bool,
) -> None:
    """Insert the spooled lines as queued jobs of the batch, whose row is there already. Line order is `seq` order.

    `created_at` is the transaction's own time, which gives the jobs' day. `notify`: somebody wants to hear of each job.
    """
    session.flush()
    role = session.scalar(text("SELECT current_role"))
    session.execute(text(f"SET LOCAL ROLE {INGEST_ROLE}; SET LOCAL statement_timeout = '{TIMEOUT_S}s'"))
    where = [(r.deployment, r.adapter.adapter_id if r.adapter else None) for r in resolved]
    day = created_at.astimezone(UTC).date()
    _copy(session, _COPY_INPUTS, _INPUT_TYPES, ((day, s.job_id, tenant_id, s.body) for s in spool))
    # Jobs last: they lock the tenant's counter until the commit.
    _copy(
        session,
        _COPY_JOBS,
        _JOB_TYPES,
        (
            (s.job_id, tenant_id, *where[s.target], s.model, PRIORITY, deadline, batch_id, s.line, s.custom_id, notify)
            for s in spool
        ),
    )  # fmt: skip
    session.execute(text(f"SET LOCAL ROLE {role}"))


def _copy(session: Session, statement: str, types: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    connection: Any = session.connection().connection.driver_connection
    with connection.cursor() as cursor:
        set_json_dumps(_as_is, cursor)  # bodies are JSON already
        with cursor.copy(statement) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)


def _as_is(body: bytes) -> bytes:
    return body
