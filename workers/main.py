"""Starting a Celery worker process: `python -m workers.main gpu --deployment D [--device N]` or `… io`.

The device is pinned before anything that could touch it is imported.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from multiprocessing.util import Finalize
from typing import Any

from celery import signals
from celery.worker import state as celery_state

from registry import heap, metrics
from registry.db import SYSTEM_ROLE, Database
from registry.errors import LorryError
from registry.logs import configure_logs, get_logger
from registry.queues import DELIVERIES, celery_app, queue_name
from registry.secrets import SecretBox
from registry.settings import Settings, get_settings
from registry.webhooks.targets import TargetRules
from workers import gpu, webhooks
from workers.consuming import consume
from workers.egress import Egress
from workers.leaving import Leaving, on_signals
from workers.watchdog import Watchdog

IO_CONCURRENCY = 128
"""Threads that wait for receivers: many slow ones leave room for the others."""
IO_CONNECTIONS = 16

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
            return run_io_worker(settings)
        return run_gpu_worker(settings, options.deployment, options.device)
    except LorryError as error:
        _log.error("the worker cannot run", code=error.code, reason=error.message)
        return 1


def run_gpu_worker(settings: Settings, deployment: str, device: str | None) -> int:
    """Host one engine until SIGTERM, an operator or its own state ends it; see `leaving`."""
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    leaving = Leaving(settings.drain_grace_s)
    on_signals(leaving.ask, leaving.hurry)
    database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=1)
    serves = gpu.assignment(database, settings, deployment)
    database.close()
    name = f"{deployment}.{device or serves.deployment.device}@{socket.gethostname()}"
    worker = gpu.GpuWorker(settings, name, serves)
    # multiprocessing joins the engine's process at exit, before atexit's own hooks: close it earlier, on every path.
    Finalize(None, worker.close, exitpriority=90)
    try:
        worker.start()
        gpu.install(worker)
        metrics.serve(settings, name)
        leaving.is_ready(worker)
        heap.freeze()
        Watchdog(settings, celery_app, deployment, worker.signs, leaving.begin)
        consume(settings, name, queue_name(deployment), serves.capacity)
        leaving.finish()
    finally:
        worker.close()


def run_io_worker(settings: Settings) -> int:
    """Send webhooks until SIGTERM; deliveries under way are finished, each within its 15 s."""
    # The C library's resolver else waits for up to half a minute in a thread of ours.
    os.environ.setdefault("RES_OPTIONS", "timeout:2 attempts:2")
    database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=IO_CONNECTIONS)
    sender = webhooks.Sender(database, SecretBox(settings), Egress(TargetRules.of(settings)))
    webhooks.install(sender)
    metrics.serve(settings, "io worker")

    def stop() -> None:
        sender.drain()
        celery_state.should_stop = 0

    # What is under way at a second signal is freed after the lease and sent again.
    on_signals(stop, lambda: os._exit(0))
    try:
        consume(settings, f"io@{socket.gethostname()}", DELIVERIES, IO_CONCURRENCY)
        return 0
    finally:
        sender.close()
        database.close()


def _keep_our_logs(**_: Any) -> None:
    """Connected to `setup_logging`, so that Celery leaves the root logger alone."""


if __name__ == "__main__":
    sys.exit(main())
