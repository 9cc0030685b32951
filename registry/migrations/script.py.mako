"""${message}

A migration must work beside the release that still runs: add, fill, switch; drop in a later release.
"""

from __future__ import annotations

from alembic import op

from registry.migrations import run_sql

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    run_sql(op.get_bind(), "${up_revision}.sql")
