"""Set-up decides rightly whether the environment is current, and says what is missing."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "setup_env.py"


@pytest.fixture
def setup_env(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_env", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "setup_env", module)
    spec.loader.exec_module(module)
    return module


def made(setup_env: ModuleType, folder: Path, stamp: dict[str, str] | None = None) -> tuple[object, list[str]]:
    """An environment that looks complete, with its installing steps only noted."""
    environment = setup_env.Environment(folder, "cpu")
    (folder / "bin").mkdir(parents=True)
    environment.python.symlink_to(sys.executable)
    environment.stamp_file.write_text(json.dumps(stamp if stamp is not None else environment.wanted()))
    steps: list[str] = []
    for step in ("create", "install_locked", "install_torch", "install_lorry", "compile"):
        setattr(environment, step, lambda step=step: steps.append(step))
    return environment, steps


def test_a_current_environment_is_left_alone(setup_env: ModuleType, tmp_path: Path) -> None:
    environment, steps = made(setup_env, tmp_path / "venv")
    environment.ensure()  # type: ignore[attr-defined]
    assert steps == []


def test_another_lock_is_installed_over_and_then_current(setup_env: ModuleType, tmp_path: Path) -> None:
    environment, steps = made(setup_env, tmp_path / "venv")
    stamp = json.loads(environment.stamp_file.read_text())  # type: ignore[attr-defined]
    environment.stamp_file.write_text(json.dumps({**stamp, "lock": ""}))  # type: ignore[attr-defined]
    environment.ensure()  # type: ignore[attr-defined]
    environment.ensure()  # type: ignore[attr-defined]
    assert steps == ["install_locked", "install_torch", "install_lorry", "compile"]


@pytest.mark.parametrize("differs", [{"place": "elsewhere"}, {"python": "3.9"}])
def test_a_copied_environment_or_one_of_another_python_is_made_anew(
    setup_env: ModuleType, tmp_path: Path, differs: dict[str, str]
) -> None:
    wanted = setup_env.Environment(tmp_path / "venv", "cpu").wanted()
    environment, steps = made(setup_env, tmp_path / "venv", {**wanted, **differs})
    environment.ensure()  # type: ignore[attr-defined]
    assert steps[0] == "create"


def test_the_stamp_depends_on_the_kind_of_machine(setup_env: ModuleType, tmp_path: Path) -> None:
    locks = {setup_env.Environment(tmp_path, kind).wanted()["lock"] for kind in ("cpu", "gpu", "api")}
    assert len(locks) == 3


def test_an_unsupported_python_is_named_with_the_ones_that_do(
    setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 0))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(setup_env.SetupError, match=r"3\.11, 3\.12 or 3\.13"):
        setup_env.use_a_supported_python()


def test_a_python_without_venv_is_told_how_to_get_it(
    setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = setup_env.Environment(tmp_path / "venv", "cpu")
    environment.uv = None
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(setup_env.SetupError, match="apt install python3-venv"):
        environment.create()


def test_progress_counts_what_pip_says(setup_env: ModuleType) -> None:
    class Pip:
        stdout = (b"Ignoring pywin32: markers\n", b"Collecting a==1\n", b"Collecting b==2\n")

    class Log:
        def write(self, line: bytes) -> None:
            """Nobody reads it here."""

    phase = setup_env.Phase("install", total=3)
    setup_env.follow(Pip(), Log(), phase)
    assert (phase.done, phase.total) == (2, 2)
