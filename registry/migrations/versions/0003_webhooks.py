"""Webhook endpoints and deliveries."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0003.sql")
