"""The demo's training: the loss counts the summary only, and what is saved names the base publicly, in bfloat16."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from demo import train
from demo.base_model import BASE_NAME


@pytest.fixture(scope="module")
def tiny() -> Any:
    """A model of SmolLM2's architecture, small enough to step in milliseconds."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return train._with_lora(LlamaForCausalLM(config))


BATCH = [
    ([1, 5, 9, 20, 21, 2], [-100, -100, -100, 20, 21, 2]),
    ([1, 6, 30, 2], [-100, -100, 30, 2]),
]


def test_the_loss_is_the_models_own_loss_over_the_summaries(tiny: Any) -> None:
    padded = torch.tensor([BATCH[0][0], [*BATCH[1][0], 2, 2]])
    labels = torch.tensor([BATCH[0][1], [*BATCH[1][1], -100, -100]])
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    expected = tiny(input_ids=padded, attention_mask=mask, labels=labels).loss
    assert train._answer_loss(tiny, BATCH, pad_id=2).item() == pytest.approx(expected.item(), abs=1e-5)


def test_steps_on_the_same_batch_lower_the_loss(tiny: Any) -> None:
    def same() -> Any:
        while True:
            yield BATCH

    losses = list(train._losses(tiny, same(), steps=30, pad_id=2))
    assert losses[-1] < losses[0]


def test_the_learning_rate_rises_then_falls() -> None:
    factors = [train._learning_rate_factor(step, 100) for step in range(101)]
    assert factors[: train.WARMUP_STEPS] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert factors[train.WARMUP_STEPS :] == sorted(factors[train.WARMUP_STEPS :], reverse=True)
    assert factors[100] == pytest.approx(0.1)


def test_an_adapter_is_saved_in_bfloat16_without_a_local_path_and_replaces_the_old_one(
    tiny: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "acme"
    folder.mkdir()
    (folder / "README.md").write_text("old")
    train._save(tiny, folder)
    assert {path.name for path in folder.iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    assert {tensor.dtype for tensor in load_file(folder / "adapter_model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == BASE_NAME
    assert list(tmp_path.iterdir()) == [folder]
