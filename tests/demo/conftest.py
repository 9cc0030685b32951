"""What tests of the demo share: a stand-in for its base model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.registry.adapter_corpus import Tensor, write_safetensors
from tests.tiny_base import make_tiny_base

HIDDEN, KEY_VALUE, LAYERS = 576, 192, 30


@pytest.fixture(scope="session")
def smollm_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the shapes of SmolLM2-135M's attention, weights of zero and a tokenizer that is not its own."""
    folder = make_tiny_base(tmp_path_factory.mktemp("demo") / "SmolLM2-135M-Instruct")
    tensors: dict[str, Tensor] = {}
    for layer in range(LAYERS):
        for module, out in {"q_proj": HIDDEN, "k_proj": KEY_VALUE, "v_proj": KEY_VALUE, "o_proj": HIDDEN}.items():
            data = np.zeros(out * HIDDEN, "<u2").tobytes()
            tensors[f"model.layers.{layer}.self_attn.{module}.weight"] = Tensor("BF16", (out, HIDDEN), data)
    write_safetensors(folder / "model.safetensors", tensors)
    return folder
