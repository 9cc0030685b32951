"""One tiny model and one vLLM start for all engine tests of this folder; a receiver and a sender for webhooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.secrets import SecretBox
from registry.settings import Settings
from registry.webhooks import outbox
from registry.webhooks.schedule import Answer
from registry.webhooks.targets import TargetRules, look_up
from tests.hooks import Hooks
from tests.receiver import Receiver
from tests.tiny_model import make_tiny_model
from tests.workers.engine_rig import Rig, tiny_config
from tests.world import World
from workers.egress import Egress
from workers.engine import VllmEngine
from workers.engine_fake import FakeEngine
from workers.webhooks import Sender


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


@pytest.fixture
def post() -> Iterator[Callable[..., Answer]]:
    """`post(url, rules=…, resolve=…)`: one attempt of an egress of its own."""
    made: list[Egress] = []

    def attempt(url: str, rules: TargetRules, resolve: Any = look_up, **headers: str) -> Answer:
        made.append(Egress(rules, resolve=resolve))
        return made[-1].post(url, headers, b"{}")

    yield attempt
    for egress in made:
        egress.close()


@pytest.fixture
def hooks(world: World, settings: Settings) -> Hooks:
    return Hooks(world, SecretBox(settings))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
def sender(hooks: Hooks, receiver: Receiver) -> Iterator[Sender]:
    made = Sender(hooks.db, hooks.box, Egress(receiver.rules))
    yield made
    made.close()


@pytest.fixture
def send_due(hooks: Hooks, sender: Sender) -> Callable[[], int]:
    """One round of dispatcher and sender: how many deliveries were picked."""

    def send() -> int:
        with hooks.db.transaction() as session:
            picked = outbox.pick(session, 100)
        for delivery in picked:
            sender.deliver(delivery)
        return len(picked)

    return send
