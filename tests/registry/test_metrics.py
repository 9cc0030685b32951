"""Metrics: the server, its address, and what may become a label."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from registry import metrics
from registry.settings import Settings


def read(address: str) -> str:
    """What Prometheus would see."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def test_no_port_no_metrics(tmp_path: Path) -> None:
    assert metrics.serve(Settings(data_dir=tmp_path), "api") is None
    assert metrics.addresses(Settings(data_dir=tmp_path)) == {}


def test_a_process_shows_its_metrics_and_says_where(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, metrics_port=0)
    metrics.request("GET", "/v1/jobs/{job_id}", 200, 0.01)

    address = metrics.serve(settings, "api")

    assert address is not None
    assert 'lorry_api_requests_total{method="GET",route="/v1/jobs/{job_id}",status="200"}' in read(address)
    assert list(metrics.addresses(settings).values()) == [f"http://{address}/metrics"]


def test_a_second_process_on_the_same_port_takes_a_free_one(tmp_path: Path) -> None:
    first = metrics.serve(Settings(data_dir=tmp_path, metrics_port=0), "one")
    assert first is not None

    second = metrics.serve(Settings(data_dir=tmp_path, metrics_port=int(first.rpartition(":")[2])), "two")

    assert second not in (None, first)
    assert "lorry_held_jobs" in read(str(second))


def test_addresses_of_dead_processes_are_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    dead = folder / "99999999.json"
    dead.write_text(json.dumps([{"targets": ["127.0.0.1:1"], "labels": {"process": "gone"}}]), "utf-8")

    assert metrics.addresses(Settings(data_dir=tmp_path)) == {}
    assert not dead.exists()


def test_addresses_and_methods_that_a_client_invents_become_no_labels() -> None:
    metrics.request("SECRET", None, 404, 0.001)

    samples = [sample for family in metrics.API_REQUESTS.collect() for sample in family.samples]
    assert {"method": "other", "route": "none", "status": "404"} in [sample.labels for sample in samples]
    assert not [sample for sample in samples if "SECRET" in sample.labels.values()]
