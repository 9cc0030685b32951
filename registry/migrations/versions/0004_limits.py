"""Idempotency keys, quotas, rate limits."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Plain SQL, beside this file's folder."""
    run_sql(op.get_bind(), "0004.sql")
