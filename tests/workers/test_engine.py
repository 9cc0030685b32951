"""What only the real engine can show: exact mixed batches, swaps, NaN, whole characters, no orphan processes."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from registry.errors import AdapterLoadFailed
from tests.tiny_model import ALL_TARGETS, encode
from tests.workers.engine_rig import Rig
from workers.generation import AdapterRef
from workers.probe.watch import is_gone

pytestmark = pytest.mark.engine
PROMPTS = ("Summarize the ticket in one line:", "고객이 주문 48213 상품이 파손되어", "The printer jams 🙏", "refund")


def _merged_answer(model_dir: Path, adapter: AdapterRef | None, prompts: tuple[str, ...], tokens: int) -> list[str]:
    """Greedy answers of the base with the adapter merged into its weights by PEFT, no vLLM involved."""
    import torch
    from peft import PeftModel
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter.path).merge_and_unload()
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    answers = []
    for prompt in prompts:
        ids = torch.tensor([encode(model_dir, prompt)])
        whole = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False)
        answers.append(tokenizer.decode(whole[0, ids.shape[1] :].tolist()).rstrip("\N{REPLACEMENT CHARACTER}"))
    return answers


def test_a_mixed_running_batch_equals_peft_merged_adapters_token_for_token(vllm_rig: Rig) -> None:
    rig = vllm_rig
    rows = (None, rig.adapter(), rig.adapter(targets=ALL_TARGETS))

    async def mixed() -> list[str]:
        for adapter in rows[1:]:
            await rig.load(adapter)
        answers = await asyncio.gather(
            *(rig.answer(row, prompt=prompt, max_tokens=24) for prompt in PROMPTS for row in rows)
        )
        return [answer.text for answer in answers]

    got = rig.run(mixed())
    expected = [_merged_answer(rig.model_dir, row, PROMPTS, tokens=24) for row in rows]

    assert got == [expected[row][prompt] for prompt in range(len(PROMPTS)) for row in range(len(rows))]
    assert len(set(got)) == len(got)


def test_an_adapter_that_breaks_while_it_is_activated_is_nowhere_afterwards(vllm_rig: Rig) -> None:
    """vLLM itself leaves it half in its slot, and a second try would succeed with garbage weights."""
    rig = vllm_rig
    bad = rig.adapter(rank=16)
    config = Path(bad.path) / "adapter_config.json"
    config.write_text(config.read_text().replace('"r": 16', '"r": 8'))

    async def walk() -> None:
        good = rig.adapter()
        await rig.load(good)
        before = await rig.answer(good)
        for _ in range(2):
            with pytest.raises(AdapterLoadFailed, match="must match"):
                await rig.load(bad, keep=good)
            residency = await rig.engine.residency()
            assert bad.int_id not in (*residency.slots, *residency.host)
        assert (await rig.answer(good)).text == before.text

    rig.run(walk())


def test_nan_is_flagged_and_scrubbing_makes_neighbours_right_again(vllm_rig: Rig) -> None:
    rig = vllm_rig
    broken = rig.adapter(strength=float("nan"))

    async def walk() -> None:
        before = await rig.answer()
        await rig.load(broken)
        poisoned = await rig.answer(broken)
        await rig.engine.scrub()
        after = await rig.answer()

        assert poisoned.corrupted
        assert not before.corrupted
        assert not after.corrupted
        assert after.text == before.text

    rig.run(walk())


def test_text_cut_by_max_tokens_never_ends_in_a_broken_character(vllm_rig: Rig) -> None:
    """The tiny model speaks in bytes of Korean and emoji: somewhere in 40 lengths a character is cut."""
    rig = vllm_rig

    async def walk() -> list[list[str]]:
        return [
            [
                answer.text
                for answer in await asyncio.gather(*(rig.answer(prompt=p, max_tokens=n) for n in range(1, 41)))
            ]
            for p in PROMPTS
        ]

    texts = rig.run(walk())
    cuts = sum(shorter == longer for by_length in texts for shorter, longer in itertools.pairwise(by_length))

    assert cuts > 0, "no length cut a character: the test shows nothing"
    assert not any(text.endswith("\N{REPLACEMENT CHARACTER}") for by_length in texts for text in by_length)
    assert any("가" <= character <= "힣" for text in texts[1] for character in text)


def test_a_stop_string_ends_the_text_before_it(vllm_rig: Rig) -> None:
    rig = vllm_rig

    async def walk() -> None:
        whole = (await rig.answer()).text
        word = next(character for character in reversed(whole) if character.isalnum())
        cut = await rig.answer(stop=(word,))

        assert cut.finish_reason == "stop"
        assert cut.text == whole[: whole.index(word)]

    rig.run(walk())


HOST = """
import sys, time
from pathlib import Path
from tests.workers.engine_rig import tiny_config
from workers.engine import VllmEngine
if __name__ == "__main__":
    engine = VllmEngine(tiny_config(Path(sys.argv[1])))
    engine.start()
    print(*engine._pids, flush=True)
    time.sleep(600)
"""


def _wait_gone(pids: list[int], within_s: float) -> list[int]:
    deadline = time.monotonic() + within_s
    while (left := [pid for pid in pids if not is_gone(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def test_no_engine_process_outlives_a_killed_host(vllm_rig: Rig, tmp_path: Path) -> None:
    script = tmp_path / "host.py"
    script.write_text(HOST)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    host = subprocess.Popen(
        [sys.executable, str(script), str(vllm_rig.model_dir)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert host.stdout is not None
        pids = [int(pid) for pid in host.stdout.readline().split()]
        assert pids
        assert not any(is_gone(pid) for pid in pids)
    finally:
        host.send_signal(signal.SIGKILL)

    assert _wait_gone(pids, within_s=10) == []
    host.wait(10)
