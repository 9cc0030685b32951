"""Which jobs were taken back from a dead worker."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0010.sql")
