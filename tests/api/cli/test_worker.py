"""`lorry worker`: the process becomes the worker, its device pinned."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from api.cli.processes import CODE_DIR
from registry.settings import get_settings
from tests.api.cli.conftest import Lorry


class _Became(Exception):
    """Raised in place of becoming another process."""


def test_the_device_is_pinned_before_the_worker_starts(
    offline: Lorry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: dict[str, object] = {}

    def become(file: str, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        seen.update(file=file, arguments=arguments, environment=environment, folder=Path.cwd())
        raise _Became

    monkeypatch.setattr(os, "execvpe", become)
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
