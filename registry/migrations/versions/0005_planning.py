"""What the backlog order and the explanations need."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0005.sql")
