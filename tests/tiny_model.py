"""A tiny Llama with random weights, its tokenizer and adapters for it: real files, the same each time.

Used by every test that needs an engine, adapter files or a chat template. Texts of the model mean nothing; what counts
is that they are deterministic, differ between adapters, and that the tokenizer cuts Korean and emoji inside characters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, LAYERS, HEADS, INTERMEDIATE, CONTEXT = 256, 4, 4, 512, 512
SPREAD = 0.08
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
NORMS = ("input_layernorm", "post_attention_layernorm")
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, HIDDEN),
    "self_attn.v_proj": (HIDDEN, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
"""Per module of a layer: (out, in)."""
ALL_TARGETS = tuple(name.partition(".")[2] for name in SHAPES)
BASE_NAME = "lorry-tests/tiny-llama"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = (
    "The customer reports that order 48213 arrived damaged and asks for a refund before Friday.",
    "Summarize the ticket in one line: the printer jams whenever two-sided mode is on.",
    "고객이 주문 48213 상품이 파손되어 도착했다고 알리며 금요일 전까지 환불을 요청합니다.",
    "티켓을 한 줄로 요약하세요: 양면 인쇄를 켜면 프린터에 용지가 걸립니다.",
    "감사합니다 🙏 배송이 빨라요 🚚💨 최고예요 👍🏽👨‍👩‍👧",
)


def make_tiny_model(folder: Path, *, dtype: str = "float32", seed: int = 7) -> Path:
    """Write model, tokenizer and chat template into `folder` (kept if already there); returns the folder."""
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write_weights(folder, vocabulary=_write_tokenizer(folder), dtype=dtype, seed=seed)
    return folder


def _write_tokenizer(folder: Path) -> int:
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
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1))
    return int(tokenizer.get_vocab_size())


def _write_weights(folder: Path, *, vocabulary: int, dtype: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    tensors = {
        "model.embed_tokens.weight": random.normal(0, SPREAD, (vocabulary, HIDDEN)),
        "lm_head.weight": random.normal(0, SPREAD, (vocabulary, HIDDEN)),
        "model.norm.weight": np.ones(HIDDEN),
    }
    # Logit 0 for the special tokens: random text would otherwise end at a random place.
    tensors["lm_head.weight"][: len(SPECIAL)] = 0
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        tensors |= {f"{prefix}.{name}.weight": random.normal(0, SPREAD, shape) for name, shape in SHAPES.items()}
        tensors |= {f"{prefix}.{norm}.weight": np.ones(HIDDEN) for norm in NORMS}
    write_safetensors(folder / "model.safetensors", tensors, dtype)
    (folder / "config.json").write_text(json.dumps(_model_config(vocabulary, dtype), indent=1))


def _model_config(vocabulary: int, dtype: str) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
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
        "torch_dtype": dtype,
    }


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]], dtype: str) -> None:
    """Write the format by hand: importing torch costs seconds, and NumPy knows no bfloat16."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, values in tensors.items():
        data = _bytes_of(values, dtype)
        header[name] = {
            "dtype": DTYPES[dtype],
            "shape": values.shape,
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def _bytes_of(values: np.ndarray[Any, Any], dtype: str) -> bytes:
    if dtype == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return values.astype(dtype).tobytes()


def encode(model_dir: Path, text: str) -> tuple[int, ...]:
    """Token ids of a text in the tiny model's tokenizer."""
    from tokenizers import Tokenizer

    return tuple(Tokenizer.from_file(str(model_dir / "tokenizer.json")).encode(text).ids)


def make_adapter(
    folder: Path,
    seed: int,
    rank: int = 8,
    targets: Iterable[str] = ("q_proj", "v_proj"),
    *,
    strength: float = 0.3,
    base_name: str = BASE_NAME,
    dtype: str = "float32",
) -> Path:
    """Write a LoRA as PEFT saves it; different seeds give different outputs. `strength` is the spread of A and B."""
    random = np.random.default_rng(seed)
    wanted, tensors = set(targets), {}
    for layer in range(LAYERS):
        for module, (out, into) in SHAPES.items():
            if module.partition(".")[2] in wanted:
                prefix = f"base_model.model.model.layers.{layer}.{module}"
                tensors[f"{prefix}.lora_A.weight"] = random.normal(size=(rank, into)) * strength
                tensors[f"{prefix}.lora_B.weight"] = random.normal(size=(out, rank)) * strength
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "adapter_model.safetensors", tensors, dtype)
    (folder / "adapter_config.json").write_text(json.dumps(_adapter_config(rank, wanted, base_name), indent=1))
    return folder


def _adapter_config(rank: int, targets: set[str], base_name: str) -> dict[str, object]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_name,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "target_modules": sorted(targets),
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
