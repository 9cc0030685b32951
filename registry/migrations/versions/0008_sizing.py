"""Deployments whose slots are sized at start; what a worker's arithmetic came to."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0008.sql")
