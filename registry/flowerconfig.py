"""Flower's configuration file, which is Python: `celery flower --conf` executes it, nothing imports it.

Owns who may look (a password, read-only, the address of the settings) and what the broker page lists. Stock Flower
lists only queues that an online worker consumes, and the backlog waits in PostgreSQL where Flower does not look: here
every deployment has its queue's row and a backlog row, with a worker or without, and Redis's rows stay when PostgreSQL
is away. Flower takes every name of this file that is one of its options: call nothing else `logging`, `db` or `auth`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from flower.utils.broker import RedisBase
from sqlalchemy.exc import SQLAlchemyError

from registry import backlog
from registry.db import SYSTEM_ROLE, Database
from registry.errors import ConfigurationError, LorryError
from registry.logs import configure_logs, get_logger
from registry.queues import DELIVERIES, queue_name
from registry.settings import Settings, get_settings

QUERY_TIMEOUT_S = 3.0
"""Longest that the broker page waits for PostgreSQL before it shows what Redis knows."""


def credentials(known: Settings) -> str:
    """`user:password`, without which Flower would show its pages to everybody. Raises ConfigurationError."""
    password = known.flower_password.get_secret_value() if known.flower_password else ""
    if not password or not password.isascii():
        raise ConfigurationError(
            "Flower needs a password in ASCII: set LORRY_FLOWER_PASSWORD. `lorry up` makes one when none is set."
        )
    return f"{known.flower_user}:{password}"


settings = get_settings()
configure_logs(settings.log_level)

address = settings.host
port = settings.flower_port
basic_auth = [credentials(settings)]
read_only = True
persistent = False
# PostgreSQL keeps the history; these bound what Flower keeps in memory.
purge_offline_workers = 60
max_tasks = 20_000
broker_api = None

log = get_logger("flower")
database = Database(
    settings.resolved_database_url, SYSTEM_ROLE, pool_size=1, statement_timeout_ms=int(QUERY_TIMEOUT_S * 1000)
)
redis_lengths = RedisBase.queues
deployments_seen: set[str] = set()


def read_backlog() -> Sequence[backlog.Length]:
    """Counts by deployment. Blocks: call it off the event loop."""
    with database.transaction() as session:
        return backlog.lengths(session)


async def waiting_jobs(broker: Any) -> dict[str, int | None]:
    """Jobs that no worker has taken, by deployment; None for each one heard of when PostgreSQL does not answer."""
    try:
        lengths = await asyncio.wait_for(asyncio.to_thread(read_backlog), QUERY_TIMEOUT_S)
    except (LorryError, SQLAlchemyError, TimeoutError) as error:
        log.warning("the backlog cannot be read", reason=type(error).__name__)
        prefix = broker.broker_prefix + queue_name("")
        in_redis = [key.decode().removeprefix(prefix) async for key in broker.redis.scan_iter(match=f"{prefix}*")]
        return dict.fromkeys([*deployments_seen, *in_redis])
    deployments_seen.update(length.deployment for length in lengths)
    return {length.deployment: length.queued + length.dispatched for length in lengths}


async def queues_and_backlogs(broker: Any, names: Iterable[str]) -> list[dict[str, Any]]:
    """Rows of the broker page: what Redis holds of every queue, and what waits for every deployment."""
    waiting = await waiting_jobs(broker)
    listed = {*names, DELIVERIES, *map(queue_name, waiting)}
    rows: list[dict[str, Any]] = await redis_lengths(broker, sorted(listed))
    rows += [{"name": f"{queue_name(name)} (backlog)", "messages": jobs} for name, jobs in waiting.items()]
    return sorted(rows, key=lambda row: str(row["name"]))


RedisBase.queues = queues_and_backlogs
