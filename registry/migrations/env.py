"""Alembic's entry: short lock waits, one transaction per migration, an advisory lock against two deploys at once."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool, text

from registry.migrations import is_later
from registry.models import Base

_ADVISORY_LOCK = 0x10AA71

url = context.config.get_main_option("sqlalchemy.url") or ""
engine = create_engine(url, poolclass=pool.NullPool)
with engine.connect() as connection:
    # Waiting for another deploy may take as long as that one does; the limits are for the tables' locks.
    connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _ADVISORY_LOCK})
    connection.execute(text("SET lock_timeout = '4s'; SET statement_timeout = '60s'"))
    connection.commit()
    context.configure(connection=connection, target_metadata=Base.metadata, transaction_per_migration=True)
    with context.begin_transaction():
        # Alembic would stumble over a revision unknown to it.
        if not is_later(context.get_context().get_current_revision()):
            context.run_migrations()
