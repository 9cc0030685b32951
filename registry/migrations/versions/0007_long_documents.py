"""Documents longer than the context: jobs whose parts run as jobs of their own."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0007.sql")
