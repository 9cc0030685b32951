"""Starting a Celery worker process: `python -m workers.main gpu --deployment D [--device N]` or `… io`.

The device is pinned before anything that could touch it is imported. SIGTERM drains: Celery stops consuming, the
planner hands back or finishes, then the engine closes.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from multiprocessing.util import Finalize
from typing import Any

from celery import signals
from celery.worker import state as celery_state

from registry.db import SYSTEM_ROLE, Database
from registry.errors import LorryError
from registry.logs import configure_logs, get_logger
from registry.queues import DELIVERIES, celery_app, queue, queue_name
from registry.settings import Settings, get_settings
from workers import gpu

IO_CONCURRENCY = 16

_log = get_logger("main")


def main(argv: list[str] | None = None) -> int:
    """Run until told to stop; the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m workers.main")
    kinds = parser.add_subparsers(dest="kind", required=True)
    gpu_parser = kinds.add_parser("gpu", help="one engine, one deployment")
    gpu_parser.add_argument("--deployment", required=True)
    gpu_parser.add_argument("--device", default=None)
    kinds.add_parser("io", help="webhook deliveries")
    options = parser.parse_args(argv)
    settings = get_settings()
    configure_logs(settings.log_level)
    signals.setup_logging.connect(_keep_our_logs)
    try:
        if options.kind == "io":
            return consume(settings, f"io@{socket.gethostname()}", DELIVERIES, IO_CONCURRENCY)
        return run_gpu_worker(settings, options.deployment, options.device)
    except LorryError as error:
        _log.error("the worker cannot run", code=error.code, reason=error.message)
        return 1


def run_gpu_worker(settings: Settings, deployment: str, device: str | None) -> int:
    """Host one engine until SIGTERM has drained it."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=1)
    serves = gpu.assignment(database, settings, deployment)
    database.close()
    name = f"{deployment}.{device or serves.deployment.device}@{socket.gethostname()}"
    worker = gpu.GpuWorker(settings, name, serves)
    closed = threading.Event()

    def close() -> None:
        if not closed.is_set():
            closed.set()
            worker.close()

    # multiprocessing joins the engine's process at exit, before atexit's own hooks: close it earlier, on every path.
    Finalize(None, close, exitpriority=90)
    try:
        worker.start()
        gpu.install(worker)
        _drain_on_shutdown(worker)
        return consume(settings, name, queue_name(deployment), serves.capacity)
    finally:
        close()


def consume(settings: Settings, name: str, queue_of: str, concurrency: int) -> int:
    """Celery's own worker, with threads: its tasks only wait."""
    celery_app.conf.task_queues = [queue(queue_of)]
    if queue_of != DELIVERIES:
        celery_app.loader.import_task_module("workers.tasks")
    worker = celery_app.Worker(
        hostname=name,
        pool="threads",
        concurrency=concurrency,
        queues=[queue_of],
        loglevel=settings.log_level,
        without_gossip=True,
        without_mingle=True,
        task_events=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def _drain_on_shutdown(worker: gpu.GpuWorker) -> None:
    """Celery waits for its tasks for ever; ours end because the planner ends their jobs within the grace."""

    def on_shutdown(**_: Any) -> None:
        threading.Thread(target=worker.drain, name="drain", daemon=True).start()

    signals.worker_shutting_down.connect(on_shutdown, weak=False)

    def on_failure() -> None:
        worker.failed.wait()
        worker.drain()
        celery_state.should_stop = 1

    threading.Thread(target=on_failure, name="engine-failure", daemon=True).start()


def _keep_our_logs(**_: Any) -> None:
    """Connected to `setup_logging`, so that Celery leaves the root logger alone."""


if __name__ == "__main__":
    sys.exit(main())
