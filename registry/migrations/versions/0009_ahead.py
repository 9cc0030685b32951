"""How far ahead of its turn a tenant may be served that comes back from idleness."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0009.sql")
