"""A base model's folder and adapters for it without any model library: for everything that never runs the engine.

Weights are zeros; the tokenizer gives one token per UTF-8 byte, so that counts in tests can be worked out by hand.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from registry.adapter_files import base_shapes
from tests.registry.adapter_corpus import BASE_NAME, Tensor, peft_config, tensor, tensor_name, write_safetensors

HIDDEN, MIDDLE, LAYERS = 32, 64, 2
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_MODULES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, HIDDEN),
    "self_attn.v_proj": (HIDDEN, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (MIDDLE, HIDDEN),
    "mlp.up_proj": (MIDDLE, HIDDEN),
    "mlp.down_proj": (HIDDEN, MIDDLE),
}


def make_tiny_base(folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> Path:
    """config.json, tokenizer.json, tokenizer_config.json and model.safetensors (36 KB) in a new folder."""
    folder.mkdir(parents=True)
    vocabulary = _write_tokenizer(folder / "tokenizer.json")
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
    }
    if chat_template is not None:
        tokenizer_config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": MIDDLE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shapes = {"model.embed_tokens": (vocabulary, HIDDEN)}
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{module}": shape for module, shape in _MODULES.items()}
    weights = {f"{name}.weight": tensor(np.zeros(shape, np.float32), "BF16") for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", weights)
    return folder


def make_adapter_dir(
    path: Path, base: Path, rank: int = 8, seed: int = 0, *, base_name: str = BASE_NAME, targets: str = "q_proj v_proj"
) -> Path:
    """A good adapter for the base folder, as PEFT saves it. Other seeds give other weights, so other digests."""
    wanted = targets.split()
    tensors: dict[str, Tensor] = {}
    for module, (out, into) in base_shapes(base).items():
        if module.rpartition(".")[2] in wanted:
            rng = np.random.default_rng((seed, zlib.crc32(module.encode())))
            tensors[tensor_name(module, "A")] = tensor(rng.normal(0, 0.02, (rank, into)))
            tensors[tensor_name(module, "B")] = tensor(rng.normal(0, 0.02, (out, rank)))
    path.mkdir(parents=True, exist_ok=True)
    config = peft_config(rank, sorted(wanted)) | {"base_model_name_or_path": base_name}
    (path / "adapter_config.json").write_text(json.dumps(config))
    write_safetensors(path / "adapter_model.safetensors", tensors)
    return path


def _write_tokenizer(file: Path) -> int:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: at for at, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIALS])
    tokenizer.save(str(file))
    return int(tokenizer.get_vocab_size())
