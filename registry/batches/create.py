"""Making a batch: its lines are checked into a spool, then one transaction stores all of it.

Either every line that may run is a queued job and the batch is in progress, or no line is and the batch has failed and
lists why. A crash at any moment leaves nothing at all.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from registry import ids
from registry.batches.fits import Fits
from registry.batches.ingest import ingest
from registry.batches.intake import Intake
from registry.batches.options import BatchOptions
from registry.batches.refusals import Refusal
from registry.batches.spool import Spool
from registry.batches.targets import Targets
from registry.db import Database
from registry.models import BadLine, Batch
from registry.prompts import PromptFormat
from registry.settings import Settings
from registry.webhooks import endpoints


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the lines come from: an uploaded file, or the request itself."""

    source: Literal["file", "ndjson"]
    endpoint: str
    input_file_id: uuid.UUID | None = None


class Submission:
    """A batch that is being made for `tenant_id`. Feed it all bytes, finish, then store or count. A context manager.

    `format_of` gives a base's prompt format by the base's name.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        tenant_id: str,
        options: BatchOptions,
        origin: Origin,
        format_of: Callable[[str], PromptFormat],
    ) -> None:
        self.tenant_id = tenant_id
        self.options = options
        self.format_of = format_of
        self.spool = Spool(settings.spool_dir)
        self.targets = Targets(database, tenant_id)
        self.intake = Intake(
            self.spool,
            self.targets,
            origin.endpoint,
            skip=options.skip,
            default_max_tokens=settings.default_max_tokens,
            check_fits=Fits(format_of).check,
        )
        self._origin = origin

    def feed_file(self, path: Path) -> None:
        """Feed a file, and finish. Raises FileNotFoundError; the file may be deleted meanwhile."""
        with path.open("rb") as file:
            while block := file.read(1024 * 1024):
                self.intake.feed(block)
        self.intake.finish()

    def store(self, session: Session) -> uuid.UUID:
        """The batch, in the caller's transaction: in progress with all its jobs, or failed without any."""
        batch = self._row(session)
        session.add(batch)
        session.flush()
        if batch.status == "in_progress":
            _store_bad_lines(session, batch, self.intake.refusals.first)
            assert batch.expires_at is not None
            moments = (batch.created_at, batch.expires_at)
            notify = bool(session.scalar(select(endpoints.hears_of_jobs(self.tenant_id))))
            ingest(session, self.tenant_id, batch.id, self.spool, self.targets.resolved, *moments, notify=notify)
        return batch.id

    def _row(self, session: Session) -> Batch:
        # Jobs get the transaction's own time as `created_at`; the batch's has to be the same.
        now = session.scalars(select(func.now())).one()
        expiry = self.options.output_expires_after
        batch = Batch(
            id=ids.new_id(),
            tenant_id=self.tenant_id,
            source=self._origin.source,
            endpoint=self._origin.endpoint,
            input_file_id=self._origin.input_file_id,
            completion_window=self.options.completion_window,
            on_bad_line="skip" if self.options.skip else "fail",
            output_expires_after_s=expiry.seconds if expiry else None,
            model=self.targets.only_model(),
            metadata_=self.options.metadata,
            webhook_url=self.options.webhook_url,
            error_total=self.intake.error_total,
            created_at=now,
            expires_at=now + self.options.window,
        )
        if self.intake.may_run:
            batch.status, batch.in_progress_at = "in_progress", now
            batch.total, batch.failed = self.intake.total, self.intake.refusals.total
        else:
            batch.status, batch.failed_at, batch.errors = "failed", now, self.intake.errors()
        return batch

    def __enter__(self) -> Submission:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.spool.close()


def _store_bad_lines(session: Session, batch: Batch, refusals: list[Refusal]) -> None:
    rows = [
        {
            "batch_id": batch.id,
            "line_no": refusal.line,
            "tenant_id": batch.tenant_id,
            "custom_id": refusal.custom_id,
            "code": refusal.code,
            "message": refusal.message,
            "param": refusal.param,
        }
        for refusal in refusals
    ]
    if rows:
        session.execute(insert(BadLine), rows)
