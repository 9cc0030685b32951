"""The database: one engine per process and role, and `transaction()`.

A session is held for statements only, never while waiting for an engine, a client or another service.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from registry.errors import Unavailable

API_ROLE = "lorry_api"
SYSTEM_ROLE = "lorry_system"
INGEST_ROLE = "lorry_ingest"
IDLE_TRANSACTION_MS = 10_000
CONNECT_S = 2
GONE_SILENT: Final = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""A server whose machine or network went away without a word is noticed after about ten seconds."""

_OPEN_TENANT: Final = text("SELECT set_config('lorry.tenant_id', :tenant, true)")


class Database:
    """Connections under one role. Row-level security binds `lorry_api`; `lorry_system` sees every tenant."""

    def __init__(self, url: str, role: str, *, pool_size: int = 10, statement_timeout_ms: int = 30_000) -> None:
        self.role = role
        # A process that is frozen in a transaction must not keep its locks: nobody could take its jobs over.
        options = (
            f"-c role={role} -c statement_timeout={statement_timeout_ms} -c lock_timeout=5000 "
            f"-c idle_in_transaction_session_timeout={IDLE_TRANSACTION_MS} -c timezone=UTC"
        )
        self.engine: Engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=0,
            hide_parameters=True,  # an error's message must not carry tenants' texts
            pool_timeout=5,
            pool_pre_ping=True,
            connect_args={"options": options, "connect_timeout": CONNECT_S, "application_name": role, **GONE_SILENT},
        )
        event.listen(self.engine, "handle_error", _drop_details)

    @contextmanager
    def transaction(self, tenant_id: str | None = None) -> Iterator[Session]:
        """One transaction: committed at the end, rolled back on any error. `tenant_id` opens that tenant's rows.

        Raises Unavailable when the database cannot be reached: nothing was acknowledged, so the caller may retry.
        """
        with mapped_outages(), Session(self.engine, expire_on_commit=False) as session, session.begin():
            if tenant_id is not None:
                open_tenant(session, tenant_id)
            yield session

    def close(self) -> None:
        """Drop all pooled connections."""
        self.engine.dispose()


def _drop_details(context: ExceptionContext) -> None:
    """Keep PostgreSQL's first line only: its DETAIL and CONTEXT quote rows, and with them tenants' texts."""
    original = context.original_exception
    if isinstance(original, psycopg.Error) and original.diag.message_primary:
        original.args = (original.diag.message_primary,)
        if context.sqlalchemy_exception is not None:
            context.sqlalchemy_exception.args = original.args


def open_tenant(session: Session, tenant_id: str) -> None:
    """Let row-level security show this tenant's rows until the transaction ends."""
    session.execute(_OPEN_TENANT, {"tenant": tenant_id})


@contextmanager
def mapped_outages() -> Iterator[None]:
    """Turn "the database is away" into Unavailable; every other database error stays what it is."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        raise Unavailable("The registry's database cannot be reached; try again in a few seconds.") from error
    except DBAPIError as error:
        if error.connection_invalidated:
            raise Unavailable("The registry's database dropped the connection; try again in a few seconds.") from error
        raise
