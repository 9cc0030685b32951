"""Every metric of every Lorry process, and the small server that shows them. A test compares `docs/metrics.md` with it.

Times are seconds. A label's values come from a small fixed set, or are deployments, which the operator names: never a
tenant, an adapter, a job, or a text. Each process shows what it saw itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from registry.logs import get_logger
from registry.settings import Settings

REGISTRY = CollectorRegistry(auto_describe=True)
_SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_LONG = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

DECISIONS = Counter("lorry_decisions", "What the planner decided, and why.", ("decision", "reason"), registry=REGISTRY)
SWAP_SECONDS = Histogram(
    "lorry_swap_seconds",
    "Parts of swaps (fetch, load, activate), by where the adapter was.",
    ("state", "part"),
    buckets=_SHORT,
    registry=REGISTRY,
)
WAIT_SECONDS = Histogram(
    "lorry_wait_seconds",
    "What jobs waited for before the engine had them: their turn (queued), a place (held), their adapter (swap).",
    ("cause",),
    buckets=_LONG,
    registry=REGISTRY,
)
HELD = Gauge("lorry_held_jobs", "Jobs that this worker has claimed.", registry=REGISTRY)
LIVE = Gauge("lorry_live_jobs", "Jobs inside the engine.", registry=REGISTRY)
LIVE_ADAPTERS = Gauge("lorry_live_adapters", "Distinct adapters with live jobs.", registry=REGISTRY)
STEP_TIME_LOADS = Gauge(
    "lorry_step_time_loads", "Adapters loaded inside an engine step since its start; must be 0.", registry=REGISTRY
)
RESIDENCY_DIFFERENCES = Gauge(
    "lorry_residency_differences",
    "Times that the engine's slots were not what the planner's book said; must be 0.",
    registry=REGISTRY,
)
JOBS = Counter("lorry_jobs", "Jobs settled by this worker, by outcome.", ("outcome",), registry=REGISTRY)
FENCED_WRITES = Counter(
    "lorry_fenced_writes", "Writes refused because the job was no longer this worker's.", ("kind",), registry=REGISTRY
)
RESCUES = Counter("lorry_rescues", "Workers declared dead, whose jobs were queued again.", registry=REGISTRY)
FALSE_RESCUES = Counter(
    "lorry_false_rescues", "Times that this worker was declared dead and was alive.", registry=REGISTRY
)
TICK_SECONDS = Histogram("lorry_tick_seconds", "The dispatcher's rounds.", buckets=_SHORT, registry=REGISTRY)
UNCLAIMED = Gauge("lorry_unclaimed_jobs", "Jobs sent that no worker has claimed.", ("deployment",), registry=REGISTRY)
BACKLOG = Gauge("lorry_backlog_jobs", "Jobs that wait to be picked.", ("deployment",), registry=REGISTRY)
API_REQUESTS = Counter(
    "lorry_api_requests",
    "Requests by the route's pattern and the answer.",
    ("method", "route", "status"),
    registry=REGISTRY,
)
API_SECONDS = Histogram(
    "lorry_api_request_seconds", "From a request to its answer's end.", ("route",), buckets=_LONG, registry=REGISTRY
)
DELIVERIES = Counter("lorry_deliveries", "Attempts to deliver a webhook, by outcome.", ("outcome",), registry=REGISTRY)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_log = get_logger("metrics")


def request(method: str, route: str | None, status: int, seconds: float) -> None:
    """Count an answered request. What names no route of ours is counted without its name."""
    pattern = route or "none"
    API_REQUESTS.labels(method if method in _METHODS else "other", pattern, str(status)).inc()
    API_SECONDS.labels(pattern).observe(seconds)


def swapped(state: str, *, fetch_ms: float, load_ms: float, activate_ms: float) -> None:
    """A swap has ended well."""
    for part, took_ms in (("fetch", fetch_ms), ("load", load_ms), ("activate", activate_ms)):
        SWAP_SECONDS.labels(state, part).observe(took_ms / 1000)


def waited(*, queued_ms: float, held_ms: float, swap_ms: float) -> None:
    """A job has entered the engine."""
    for cause, took_ms in (("queued", queued_ms), ("held", held_ms), ("swap", swap_ms)):
        WAIT_SECONDS.labels(cause).observe(max(0.0, took_ms) / 1000)


def watch(gauges: Mapping[Gauge, Callable[[], float]]) -> None:
    """Ask for these values whenever somebody looks."""
    for gauge, ask in gauges.items():
        gauge.set_function(ask)


def serve(settings: Settings, process: str) -> str | None:
    """Show this process's metrics at `/metrics`; its address, or None when the operator wants none.

    The address is left in the data folder for `lorry status` and for Prometheus's own file discovery.
    """
    if settings.metrics_port is None:
        return None
    try:
        server, _ = start_http_server(settings.metrics_port, settings.metrics_host, REGISTRY)
    except OSError:  # another process of this machine has that port
        server, _ = start_http_server(0, settings.metrics_host, REGISTRY)
    address = f"{settings.metrics_host}:{server.server_port}"
    _log.info("metrics are shown", address=address)
    folder = _folder(settings)
    with suppress(OSError):  # a folder that is read-only takes nothing from the metrics themselves
        folder.mkdir(parents=True, exist_ok=True)
        target = [{"targets": [address], "labels": {"process": process}}]
        (folder / f"{os.getpid()}.json").write_text(json.dumps(target), "utf-8")
    return address


def addresses(settings: Settings) -> dict[str, str]:
    """Where this machine's processes show their metrics, by `process (pid)`. Files of dead processes are removed."""
    found = {}
    for file in sorted(_folder(settings).glob("*.json")):
        if not Path(f"/proc/{file.stem}").exists():
            file.unlink(missing_ok=True)
            continue
        with suppress(OSError, ValueError, LookupError, TypeError):
            (target,) = json.loads(file.read_text("utf-8"))
            found[f"{target['labels']['process']} ({file.stem})"] = f"http://{target['targets'][0]}/metrics"
    return found


def _folder(settings: Settings) -> Path:
    return settings.data_dir.absolute() / "metrics"
