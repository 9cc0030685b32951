"""Schema changes: fail fast, one at a time, fit for the release that still runs.

`upgrade(url)` brings a database to the newest revision; `python -m registry.migrations` does so for this installation.
A database that a later release has upgraded fits this one too: it is used, and left as it is.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session

_HERE = Path(__file__).parent


def config(url: str) -> Config:
    """Alembic's configuration, without an ini file."""
    made = Config()
    made.set_main_option("script_location", str(_HERE))
    made.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return made


def upgrade(url: str, revision: str = "head") -> None:
    """Run every missing migration. Safe to call from several processes: an advisory lock orders them."""
    command.upgrade(config(url), revision)


def head() -> str:
    """The newest revision that this release knows."""
    return _known()[0]


def is_later(revision: str | None) -> bool:
    """Whether it is a later release's: none that this one knows."""
    return revision is not None and revision not in _known()


def is_behind(revision: str | None) -> bool:
    """Whether a database at this revision lacks migrations of this release."""
    return revision != head() and not is_later(revision)


@cache
def _known() -> tuple[str, ...]:
    """This release's revisions, the newest first."""
    return tuple(script.revision for script in ScriptDirectory(str(_HERE)).walk_revisions())


def current(session: Session) -> str | None:
    """The revision that the database is at; None before the first."""
    if session.scalar(text("SELECT to_regclass('alembic_version')")) is None:
        return None
    found: str | None = session.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def run_sql(connection: Connection, *names: str) -> None:
    """Execute SQL files of this folder, whole: only the driver itself takes several statements in one string."""
    driver = connection.connection.driver_connection
    assert driver is not None
    for name in names:
        driver.execute((_HERE / "sql" / name).read_text(encoding="utf-8"))
