"""`lorry up`, Procfile and docker-compose.yml run the same processes by the same commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.cli.processes import API, CODE_DIR, DISPATCHER, FLOWER, GPU_WORKER, IO_WORKER, MIGRATE, PROCESSES

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = {"postgres", "redis"}
VARIABLES = {"${LORRY_DEPLOYMENT": "{deployment}", "${LORRY_DEVICE": "{device}"}

TABLE = {kind.name: ("python", *kind.arguments) for kind in PROCESSES}


def placeholders(words: list[str]) -> tuple[str, ...]:
    """`${LORRY_DEPLOYMENT:?...}` in a file is `{deployment}` in the table."""
    return tuple(next((name for start, name in VARIABLES.items() if word.startswith(start)), word) for word in words)


def procfile() -> dict[str, tuple[str, ...]]:
    lines = (line for line in (ROOT / "Procfile").read_text("utf-8").splitlines() if not line.startswith("#"))
    found = {}
    for name, command in (line.split(": ", 1) for line in lines):
        # A `${NAME:?words with spaces}` is one word to a shell, but not to shlex.
        plain = re.sub(r"(\$\{\w+)[^}]*\}", r"\1}", command)
        found[{"release": "migrate"}.get(name, name)] = placeholders(shlex.split(plain))
    return found


def test_procfile_and_table_agree() -> None:
    assert procfile() == TABLE


def test_compose_and_table_agree() -> None:
    commands = {name: placeholders(service["command"]) for name, service in SERVICES.items() if name not in SERVERS}
    assert commands.pop("gpu-worker-cpu") == TABLE["gpu-worker"]
    assert commands == TABLE


def test_the_table_lists_every_kind_once() -> None:
    assert sorted(TABLE) == sorted({kind.name for kind in (MIGRATE, API, DISPATCHER, GPU_WORKER, IO_WORKER, FLOWER)})
    assert API.stop_stage < GPU_WORKER.stop_stage == IO_WORKER.stop_stage < DISPATCHER.stop_stage == FLOWER.stop_stage


@pytest.mark.parametrize("kind", PROCESSES, ids=lambda kind: kind.name)
def test_each_command_names_a_module_that_exists(kind: Any) -> None:
    module = kind.arguments[1]
    if module == "celery":
        assert (CODE_DIR / kind.arguments[-1].removeprefix("--conf=")).is_file()
        module = kind.arguments[3].partition(":")[0]
    path = CODE_DIR / module.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def test_a_worker_command_is_filled_in() -> None:
    filled = GPU_WORKER.argv(deployment="smol", device="1")
    assert filled[1:] == ("-m", "workers.main", "gpu", "--deployment", "smol", "--device", "1")


def test_every_service_gets_time_to_drain() -> None:
    assert {name for name, service in SERVICES.items() if service.get("stop_grace_period") != "40s"} == set()


def test_compose_publishes_the_api_and_flower_on_loopback_and_nothing_else() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"api": ["${LORRY_API_PUBLISH:-127.0.0.1:8080}:8080"], "flower": ["127.0.0.1:5555:5555"]}


def test_every_password_in_compose_must_be_given() -> None:
    text = (ROOT / "docker-compose.yml").read_text("utf-8")
    uses = re.findall(r"\$\{(LORRY_\w*PASSWORD)(:?\??)", text)
    assert {name for name, _ in uses} == {"LORRY_DB_PASSWORD", "LORRY_BROKER_PASSWORD", "LORRY_FLOWER_PASSWORD"}
    assert {check for _, check in uses} == {":?"}


def test_the_gpu_worker_reserves_a_gpu_and_the_cpu_worker_is_opt_in() -> None:
    devices = SERVICES["gpu-worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["capabilities"] == ["gpu"]
    assert SERVICES["gpu-worker-cpu"]["profiles"] == ["cpu"]
    assert "deploy" not in SERVICES["gpu-worker-cpu"]


def test_servers_and_answering_services_have_health_checks() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" in service} == SERVERS | {"api", "flower"}
