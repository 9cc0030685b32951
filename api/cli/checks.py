"""Looking at one neighbour at a time: the database and its schema, the broker; for `status` and `doctor`."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
import redis

from registry import migrations
from registry.settings import Settings

ANSWER_TIMEOUT_S = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `repair` says what to do when it is not well."""

    name: str
    ok: bool
    detail: str
    repair: str = ""


def servers(settings: Settings) -> list[Finding]:
    """Database, schema and broker, each asked with a short timeout."""
    return [*_database(settings), _broker(settings)]


def _database(settings: Settings) -> list[Finding]:
    url = settings.resolved_database_url
    repair = _start_or_mend("LORRY_DATABASE_URL", settings.database_url)
    try:
        # Not through `Database`: its role exists only once the schema does, which is what is asked here.
        with psycopg.connect(_libpq(url), connect_timeout=ANSWER_TIMEOUT_S) as connection:
            version = connection.info.parameter_status("server_version") or "unknown"
            revision = _revision(connection)
    except psycopg.OperationalError as error:
        return [Finding("database", False, _first_line(error), repair)]
    return [Finding("database", True, f"PostgreSQL {version.split()[0]}"), _schema(revision)]


def _schema(revision: str | None) -> Finding:
    if migrations.is_behind(revision):
        detail = f"{revision or 'none'}; the code wants {migrations.head()}"
        return Finding("schema", False, detail, "Run `python -m registry.migrations`.")
    return Finding(
        "schema",
        True,
        f"{revision}, of a later release" if migrations.is_later(revision) else f"{revision}, up to date",
    )


def _revision(connection: psycopg.Connection[tuple[object, ...]]) -> str | None:
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return None
    return str(row[0]) if row else None


def _broker(settings: Settings) -> Finding:
    repair = _start_or_mend("LORRY_BROKER_URL", settings.broker_url)
    try:
        with redis.Redis.from_url(
            settings.resolved_broker_url, socket_connect_timeout=ANSWER_TIMEOUT_S, socket_timeout=ANSWER_TIMEOUT_S
        ) as client:
            about = client.info("server")
    except (redis.RedisError, OSError) as error:
        return Finding("broker", False, _first_line(error), repair)
    name = "Valkey" if "valkey_version" in about else "Redis"
    return Finding("broker", True, f"{name} {about.get('valkey_version') or about.get('redis_version')}")


def _start_or_mend(variable: str, given: str | None) -> str:
    return f"Look at the server that {variable} names." if given else "Start it with `lorry up`."


def _libpq(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
