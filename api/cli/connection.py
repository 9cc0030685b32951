"""The registry as an operator's command sees it: every tenant, and clear words when it is away or empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import errors as postgres
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.orm import Session

from registry.db import SYSTEM_ROLE, Database
from registry.errors import ConfigurationError, Unavailable
from registry.settings import get_settings

_NO_SCHEMA = "The database has no Lorry schema yet. `lorry up` makes it, or run `python -m registry.migrations`."
_AWAY = "The registry's database cannot be reached. Is `lorry up` running on this data directory? `lorry doctor` looks."


@contextmanager
def system_database() -> Iterator[Database]:
    """A `Database` for one command. Raises Unavailable or ConfigurationError that say what to do."""
    database = Database(get_settings().resolved_database_url, SYSTEM_ROLE, pool_size=1)
    try:
        yield database
    except Unavailable as away:
        if _lacks_role(away.__cause__):
            raise ConfigurationError(_NO_SCHEMA) from away
        raise Unavailable(_AWAY) from away
    except ProgrammingError as error:
        if isinstance(error.orig, postgres.UndefinedTable):
            raise ConfigurationError(_NO_SCHEMA) from error
        raise
    finally:
        database.close()


@contextmanager
def registry_session() -> Iterator[Session]:
    """One transaction of `system_database`."""
    with system_database() as database, database.transaction() as session:
        yield session


def _lacks_role(cause: BaseException | None) -> bool:
    """Roles come with the first migration; a connection that asks for a missing one is refused at once."""
    return isinstance(cause, DBAPIError) and f'role "{SYSTEM_ROLE}" does not exist' in str(cause.orig)
