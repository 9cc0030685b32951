"""Batches, files, refused lines."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0002.sql", "0002_lifecycle.sql")
