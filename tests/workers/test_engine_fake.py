"""The fake engine's ways to fail on purpose, which policy and fault tests build on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from registry.errors import AdapterLoadFailed, EngineDead, GenerationFailed
from tests.workers.engine_rig import Rig
from workers.fake_markers import LOAD_FAILS_KEY, Marker, digest


def test_the_answer_tells_which_adapter_served_which_prompt(fake_rig: Rig) -> None:
    rig, adapter = fake_rig, fake_rig.adapter()

    async def walk() -> set[str]:
        await rig.load(adapter)
        answers = [await rig.answer(who, prompt=prompt) for who in (adapter, None) for prompt in ("one", "two")]
        assert answers[0].text == digest(rig.generation(adapter, prompt="one"))
        return {answer.text for answer in answers}

    assert len(rig.run(walk())) == 4


def test_fail_markers_fail_their_own_request_always_or_once(fake_rig: Rig) -> None:
    async def walk() -> None:
        for _ in range(2):
            with pytest.raises(GenerationFailed):
                await fake_rig.answer(prompt=f"a {Marker.FAIL} b")
        with pytest.raises(GenerationFailed):
            await fake_rig.answer(prompt=f"a {Marker.FAIL_ONCE} b")
        assert (await fake_rig.answer(prompt=f"a {Marker.FAIL_ONCE} b")).output_tokens > 0

    fake_rig.run(walk())


def test_corruption_markers_last_for_ever_or_until_the_scrub(fake_rig: Rig) -> None:
    async def flags() -> list[bool]:
        prompts = (Marker.CORRUPT, Marker.CORRUPT_UNTIL_SCRUB, "sound")
        return [(await fake_rig.answer(prompt=prompt)).corrupted for prompt in prompts]

    async def walk() -> None:
        assert await flags() == [True, True, False]
        await fake_rig.engine.scrub()
        assert await flags() == [True, False, False]

    fake_rig.run(walk())


def test_the_death_marker_kills_the_engine_until_it_is_started_again(fake_rig: Rig) -> None:
    async def die() -> None:
        for prompt in (Marker.DEATH, "sound"):
            with pytest.raises(EngineDead):
                await fake_rig.answer(prompt=prompt)

    fake_rig.run(die())
    fake_rig.engine.close()
    fake_rig.engine.start()

    assert fake_rig.run(fake_rig.answer()).output_tokens > 0


def test_an_adapter_marked_in_its_configuration_does_not_load(fake_rig: Rig) -> None:
    adapter = fake_rig.adapter()
    config = Path(adapter.path) / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), LOAD_FAILS_KEY: True}))

    async def walk() -> None:
        with pytest.raises(AdapterLoadFailed, match=LOAD_FAILS_KEY):
            await fake_rig.load(adapter)
        assert adapter.int_id not in (await fake_rig.engine.residency()).host

    fake_rig.run(walk())


POISONED = """
from workers.engine_fake import FakeEngine
from workers.fake_markers import Marker
from workers.generation import EngineConfig, Generation, Sampling
engine = FakeEngine(EngineConfig("no-model", "float32", 512, 4, 2, 8, 4))
engine.start()
generation = Generation("job", tuple(Marker.POISON.encode()), Sampling(4), "acme")
engine._runner.call(engine.generate(generation), 10)
"""


def test_the_poison_marker_ends_the_process_as_a_segmentation_fault_would() -> None:
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", POISONED], cwd=root, timeout=60, check=False).returncode == 139
