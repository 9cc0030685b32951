"""Tenants, keys, bases, deployments, adapters, jobs, texts by day, tallies, workers; roles and row-level security."""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Roles first: the tables belong to lorry_owner."""
    run_sql(op.get_bind(), "0001_roles.sql", "0001_tables.sql", "0001_rules.sql")
