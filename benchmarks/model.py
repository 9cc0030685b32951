"""The models of the benchmarks: a random Llama big enough that a step costs something, random adapters for any base.

Kept in a cache folder, made once. What they say means nothing; how long it takes does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from registry.adapter_files import base_shapes

NAME = "lorry-benchmarks/random-llama-512x8"
HIDDEN, LAYERS, HEADS, INTERMEDIATE, CONTEXT = 512, 8, 8, 1376, 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 2048
CORPUS = ("The customer reports that the order arrived damaged and asks for a refund before Friday.",)
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
MODULES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, HIDDEN),
    "self_attn.v_proj": (HIDDEN, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}


def cache_dir() -> Path:
    """Where models stay between runs."""
    return Path.home() / ".cache" / "lorry-benchmarks"


def random_model(folder: Path | None = None) -> Path:
    """The folder of the random model, made if it is not there."""
    folder = folder or cache_dir() / "random-llama-512x8"
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write_tokenizer(folder)
        save_file(_weights(np.random.default_rng(7)), folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(_config(), indent=1))
    return folder


def adapter(base: Path, base_name: str, rank: int, seed: int, folder: Path | None = None) -> Path:
    """The folder of a random adapter of all linear layers, as PEFT saves it, made if it is not there."""
    folder = folder or cache_dir() / "adapters" / f"{base.name}-r{rank}-{seed}"
    if not (folder / "adapter_config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        random = np.random.default_rng([rank, seed])
        tensors = {}
        for module, (out, into) in base_shapes(base).items():
            if module.rpartition(".")[2] in TARGETS:
                name = f"base_model.model.{module}"
                tensors[f"{name}.lora_A.weight"] = _normal(random, (rank, into), 0.02)
                tensors[f"{name}.lora_B.weight"] = _normal(random, (out, rank), 0.02)
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        (folder / "adapter_config.json").write_text(json.dumps(_adapter_config(base_name, rank), indent=1))
    return folder


def _normal(random: np.random.Generator, shape: tuple[int, ...], spread: float) -> np.ndarray[Any, Any]:
    return (random.standard_normal(shape, np.float32) * spread).astype(np.float16)


def _weights(random: np.random.Generator) -> dict[str, np.ndarray[Any, Any]]:
    tensors = {
        "model.embed_tokens.weight": _normal(random, (VOCABULARY, HIDDEN), 0.08),
        "lm_head.weight": _normal(random, (VOCABULARY, HIDDEN), 0.08),
        "model.norm.weight": np.ones(HIDDEN, np.float16),
    }
    # Logit 0 for the special tokens: no text ends before `max_tokens`, so that every arm writes as many.
    tensors["lm_head.weight"][: len(SPECIAL)] = 0
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        tensors |= {f"{prefix}.{name}.weight": _normal(random, shape, 0.04) for name, shape in MODULES.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{norm}.weight"] = np.ones(HIDDEN, np.float16)
    return tensors


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "model_max_length": CONTEXT}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def _config() -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": SPECIAL.index("<|im_end|>"),
        "pad_token_id": SPECIAL.index("<|endoftext|>"),
        "torch_dtype": "float16",
    }


def _adapter_config(base_name: str, rank: int) -> dict[str, object]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "target_modules": list(TARGETS),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "use_dora": False,
        "use_rslora": False,
        "rank_pattern": {},
        "alpha_pattern": {},
    }
