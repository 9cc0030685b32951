"""Logs: one JSON object a line on stderr, ids and numbers only. Tenant text never comes here."""

from __future__ import annotations

import logging
import sys
from typing import cast

import structlog

_PROCESSORS: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]

_TALKATIVE = ("celery.worker.strategy", "celery.app.trace")
"""They say of every message that it came and of every task that it ended: the job's row and Flower say it better."""


def configure_logs(level: str) -> None:
    """Send the standard library's and our own records through one formatter. Tracebacks show no local variables."""
    renderer = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_PROCESSORS,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(renderer)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(level if level == "DEBUG" else logging.WARNING)
    structlog.configure(
        processors=[*_PROCESSORS, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose records carry fields: `log.info("claimed", jobs=3)`."""
    return cast(structlog.stdlib.BoundLogger, structlog.get_logger(f"lorry.{name}"))
