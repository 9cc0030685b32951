"""`lorry worker`: the process becomes the worker, its device pinned."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from api.cli.processes import CODE_DIR
from registry.settings import get_settings
from tests.api.cli.conftest import Lorry
from tests.world import World


class _Became(Exception):
    """Raised in place of becoming another process."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What it would have become."""
    seen: dict[str, object] = {}

    def become(file: str, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        seen.update(file=file, arguments=arguments, environment=environment, folder=Path.cwd())
        raise _Became

    monkeypatch.setattr(os, "execvpe", become)
    monkeypatch.chdir(Path.cwd())  # and back afterwards
    return seen


def test_without_a_device_it_is_the_deployments(lorry: Lorry, world: World, seen: dict[str, object]) -> None:
    world.base("Tiny", device="3")
    with pytest.raises(_Became):
        lorry("worker", "--deployment", "Tiny")
    environment = seen["environment"]
    assert isinstance(environment, dict)
    assert environment["CUDA_VISIBLE_DEVICES"] == "3"


def test_the_device_is_pinned_before_the_worker_starts(
    offline: Lorry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: dict[str, object]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LORRY_DATA_DIR", "relative")
    get_settings.cache_clear()
    with pytest.raises(_Became):
        offline("worker", "--deployment", "Llama-3.1-8B", "--device", "2")
    assert seen["file"] == sys.executable
    wanted = ("-m", "workers.main", "gpu", "--deployment", "Llama-3.1-8B", "--device", "2")
    assert seen["arguments"] == (sys.executable, *wanted)
    assert seen["folder"] == CODE_DIR
    environment = seen["environment"]
    assert isinstance(environment, dict)
    assert environment["CUDA_VISIBLE_DEVICES"] == "2"
    assert environment["LORRY_DATA_DIR"] == str(tmp_path / "relative")
