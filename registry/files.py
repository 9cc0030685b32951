"""Files of a tenant: inputs of batches as uploaded, on disk; outputs and errors, which are read from a batch's rows.

A row is there only while its bytes are: bytes come first and go last. What expires, `batches.retention` removes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import ColumnElement, delete, func, or_, select, tuple_
from sqlalchemy.orm import Session

from registry.errors import InvalidField, NotFound
from registry.ids import new_id
from registry.models import File

PURPOSE: Final = "batch"
FRESH_PREFIX: Final = ".new-"
_STALE_S: Final = 3600


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes that have arrived whole, in a file of the store that nobody else knows yet."""

    path: Path
    bytes: int
    sha256: str


class FileStore:
    """Where inputs lie: one file each, named by its id. API processes that share a database share this folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute() / "files"

    def fresh(self) -> Path:
        """A new name to receive into, on the disk of the final ones."""
        self.root.mkdir(parents=True, exist_ok=True)
        return self.root / f"{FRESH_PREFIX}{new_id().hex}"

    def keep(self, received: Received, file_id: uuid.UUID) -> Path:
        """Move what was received to its place."""
        home = self.root / file_id.hex[-2:] / file_id.hex
        home.parent.mkdir(exist_ok=True)
        received.path.rename(home)
        return home

    def sweep(self) -> int:
        """Remove what a crash left of uploads that never became files; how many. One that still comes is written to."""
        before = time.time() - _STALE_S
        stale = [path for path in self.root.glob(f"{FRESH_PREFIX}*") if path.stat().st_mtime < before]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)


def add(
    session: Session,
    tenant_id: str,
    received: Received,
    *,
    file_id: uuid.UUID,
    path: Path,
    filename: str,
    expires_after_s: int | None,
) -> File:
    """The row of an uploaded input that lies at `path`."""
    now = session.scalar(select(func.now()))
    assert now is not None
    row = File(
        id=file_id,
        tenant_id=tenant_id,
        purpose=PURPOSE,
        content="input",
        filename=filename,
        bytes=received.bytes,
        sha256=received.sha256,
        path=str(path),
        created_at=now,
        expires_at=now + timedelta(seconds=expires_after_s) if expires_after_s is not None else None,
    )
    session.add(row)
    session.flush()
    return row


def get(session: Session, tenant_id: str, file_id: uuid.UUID) -> File:
    """A file that has not expired, or NotFound."""
    found = session.scalar(select(File).where(File.id == file_id, *_mine(tenant_id)))
    if found is None:
        raise NotFound("No such file: check the id.")
    return found


def page(
    session: Session, tenant_id: str, *, after: uuid.UUID | None, limit: int, newest_first: bool, purpose: str | None
) -> Sequence[File]:
    """At most `limit` + 1 files by age: the extra one says that more follow. Raises InvalidField for a bad `after`."""
    query = select(File).where(*_mine(tenant_id))
    if purpose is not None:
        query = query.where(File.purpose == purpose)
    place = tuple_(File.created_at, File.id)
    if after is not None:
        known = select(File.created_at, File.id).where(File.id == after, *_mine(tenant_id))
        mark = session.execute(known).one_or_none()
        if mark is None:
            raise InvalidField("`after` is not the id of one of your files.", param="after")
        query = query.where(place < tuple(mark) if newest_first else place > tuple(mark))
    order = (File.created_at.desc(), File.id.desc()) if newest_first else (File.created_at, File.id)
    return session.scalars(query.order_by(*order).limit(limit + 1)).all()


def remove(session: Session, tenant_id: str, file_id: uuid.UUID) -> str | None:
    """Delete the row; the path whose bytes the caller removes after the commit. Raises NotFound."""
    gone = session.execute(delete(File).where(File.id == file_id, *_mine(tenant_id)).returning(File.path)).one_or_none()
    if gone is None:
        raise NotFound("No such file: check the id.")
    return str(gone.path) if gone.path is not None else None


def _mine(tenant_id: str) -> tuple[ColumnElement[bool], ...]:
    return File.tenant_id == tenant_id, or_(File.expires_at.is_(None), File.expires_at > func.now())
