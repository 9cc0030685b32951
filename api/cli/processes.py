"""The processes of a Lorry installation: the one list that `lorry up`, `Procfile` and `docker-compose.yml` agree with.

Owns names, commands and the order of stopping. A test reads all three and compares the commands.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import registry

CODE_DIR = Path(registry.__file__).resolve().parent.parent
"""The folder that holds the packages: where the commands run, so that `python -m api` means this `api`."""


@dataclass(frozen=True, slots=True)
class ProcessKind:
    """One kind of process. `arguments` follow `python`; `{deployment}` and `{device}` are filled in per worker."""

    name: str
    arguments: tuple[str, ...]
    stop_stage: int
    """Lower stops earlier: first what lets work in, then what runs it, then what serves both."""
    grace_s: float

    def argv(self, **values: str) -> tuple[str, ...]:
        """The full command under this interpreter."""
        return (sys.executable, *(argument.format(**values) for argument in self.arguments))


MIGRATE = ProcessKind("migrate", ("-m", "registry.migrations"), stop_stage=0, grace_s=10)
API = ProcessKind("api", ("-m", "api"), stop_stage=0, grace_s=15)
GPU_WORKER = ProcessKind(
    "gpu-worker",
    ("-m", "workers.main", "gpu", "--deployment", "{deployment}", "--device", "{device}"),
    stop_stage=1,
    grace_s=30,
)
IO_WORKER = ProcessKind("io-worker", ("-m", "workers.main", "io"), stop_stage=1, grace_s=30)
DISPATCHER = ProcessKind("dispatcher", ("-m", "workers.dispatcher"), stop_stage=2, grace_s=10)
FLOWER = ProcessKind(
    "flower",
    ("-m", "celery", "-A", "registry.queues:celery_app", "flower", "--conf=registry/flowerconfig.py"),
    stop_stage=2,
    grace_s=10,
)
BROKER_STAGE, DATABASE_STAGE = 3, 4

PROCESSES = (MIGRATE, API, DISPATCHER, GPU_WORKER, IO_WORKER, FLOWER)
