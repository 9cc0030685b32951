"""Batches as they are made: lines fed to a submission, in blocks, by a tenant bound by row-level security."""

from __future__ import annotations

import json
import uuid
from typing import Any

from sqlalchemy import text

from registry.batches.create import Origin, Submission
from registry.batches.lines import JOBS
from registry.batches.options import BatchOptions
from registry.db import Database
from registry.prompts import PromptFormat
from registry.settings import Settings
from tests.world import World


def line(custom_id: str = "a", **fields: Any) -> bytes:
    """A good line of ours, unless `fields` say otherwise."""
    inputs = {} if {"document", "messages", "prompt"} & fields.keys() else {"document": "x"}
    return json.dumps({"custom_id": custom_id, "model": "Tiny", **inputs, **fields}).encode()


def chat_line(custom_id: str = "a", **body: Any) -> bytes:
    """A good line of an uploaded file for /v1/chat/completions."""
    whole = {"model": "Tiny", "messages": [{"role": "user", "content": "x"}], **body}
    parts = {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": whole}
    return json.dumps(parts).encode()


class Submissions:
    """Makes submissions, and reads what they stored."""

    def __init__(self, world: World, database: Database, settings: Settings) -> None:
        self.world = world
        self.database = database
        self.settings = settings
        self._open: list[Submission] = []
        world.base()

    def begin(self, endpoint: str = JOBS, tenant_id: str = "acme", **options: Any) -> Submission:
        """A submission that waits for its lines."""
        self.world.tenant(tenant_id)
        model = self.world.base_row()
        prompt_format = PromptFormat(self.world.base_dir, model.template)
        made = Submission(
            self.database,
            self.settings,
            tenant_id,
            BatchOptions(**options),
            Origin("ndjson", endpoint),
            lambda _: prompt_format,
        )
        self._open.append(made)
        return made

    def check(self, *lines: bytes, block_bytes: int = 1000, **how: Any) -> Submission:
        """A submission that has all its lines."""
        made = self.begin(**how)
        whole = b"\n".join(lines)
        for at in range(0, len(whole), block_bytes):
            made.intake.feed(whole[at : at + block_bytes])
        made.intake.finish()
        return made

    def store(self, submission: Submission) -> uuid.UUID:
        """Its batch, committed."""
        with self.database.transaction(submission.tenant_id) as session:
            return submission.store(session)

    def jobs(self, batch_id: uuid.UUID) -> list[dict[str, Any]]:
        """The batch's jobs with their bodies, in the order of `seq`."""
        query = text("""
            SELECT j.*, i.body, i.tenant_id AS body_tenant, i.day, b.created_at AS batch_created_at, b.expires_at
            FROM jobs j JOIN batches b ON b.id = j.batch_id
            JOIN job_inputs i ON i.job_id = j.id AND i.day = (j.created_at AT TIME ZONE 'UTC')::date
            WHERE j.batch_id = :id ORDER BY j.seq""")
        with self.world.db.transaction() as session:
            return [dict(row) for row in session.execute(query, {"id": batch_id}).mappings()]

    def count(self, table: str) -> int:
        """Rows of a table, of all tenants."""
        with self.world.db.transaction() as session:
            return int(session.scalar(text(f"SELECT count(*) FROM {table}")))  # noqa: S608

    def close(self) -> None:
        for submission in self._open:
            submission.spool.close()


def codes(submission: Submission) -> list[tuple[int | None, str]]:
    """What was refused: line and code."""
    return [(error["line"], error["code"]) for error in submission.intake.errors()]
