"""Pauses, drains and quarantines."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0006.sql")
