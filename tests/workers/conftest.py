"""One tiny model and one vLLM start for all engine tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tiny_model import make_tiny_model
from tests.workers.engine_rig import Rig, tiny_config
from workers.engine import VllmEngine
from workers.engine_fake import FakeEngine


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def vllm_rig(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    engine = VllmEngine(tiny_config(tiny_model_dir))
    engine.start()
    yield Rig(engine, tiny_model_dir, tmp_path_factory.mktemp("adapters"))
    engine.close()


@pytest.fixture
def fake_rig(tiny_model_dir: Path, tmp_path: Path) -> Iterator[Rig]:
    engine = FakeEngine(tiny_config(tiny_model_dir), step_ms=2, tokens=400, load_ms=4, activate_ms=1)
    engine.start()
    yield Rig(engine, tiny_model_dir, tmp_path)
    engine.close()


@pytest.fixture(params=["fake", pytest.param("vllm", marks=pytest.mark.engine)])
def rig(request: pytest.FixtureRequest) -> Rig:
    """Each kind of engine in turn."""
    rig: Rig = request.getfixturevalue(f"{request.param}_rig")
    return rig
