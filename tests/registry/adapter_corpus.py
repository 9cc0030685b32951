"""Makes the corpus of the adapter gate: a tiny Llama-like base and good PEFT folders.

Files are written by hand, byte by byte: the usual library refuses to write most of what is needed here.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

HIDDEN, MIDDLE, VOCAB, LAYERS = 64, 128, 96, 2
BASE_NAME = "tiny/llama"
MODULES: dict[str, tuple[int, int]] = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.v_proj": (HIDDEN // 2, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (MIDDLE, HIDDEN),
    "mlp.up_proj": (MIDDLE, HIDDEN),
    "mlp.down_proj": (HIDDEN, MIDDLE),
}


@dataclass(frozen=True)
class Tensor:
    """A tensor as the file holds it: dtype name, shape, raw bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def tensor(array: np.ndarray[Any, Any], dtype: str = "F32") -> Tensor:
    """An array in one of the file's dtypes; bfloat16 keeps the upper half of each float32."""
    if dtype == "BF16":
        data = (array.astype("<f4").view(np.uint32) >> 16).astype("<u2").tobytes()
    else:
        data = array.astype({"F32": "<f4", "F16": "<f2", "F64": "<f8"}[dtype]).tobytes()
    return Tensor(dtype, array.shape, data)


def header_of(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The header entries for tensors laid out one after the other."""
    header, position = {}, 0
    for name, item in tensors.items():
        end = position + len(item.data)
        header[name] = {"dtype": item.dtype, "shape": list(item.shape), "data_offsets": [position, end]}
        position = end
    return header


def file_bytes(header: bytes, data: bytes) -> bytes:
    """A safetensors file from its parts."""
    return struct.pack("<Q", len(header)) + header + data


def write_safetensors(path: Path, tensors: dict[str, Tensor], *, header: dict[str, Any] | None = None) -> None:
    """Write tensors, optionally under a header that does not tell the truth about them."""
    raw = json.dumps(header_of(tensors) if header is None else header).encode()
    path.write_bytes(file_bytes(raw, b"".join(item.data for item in tensors.values())))


def make_base(folder: Path, *, shards: int = 1, tied: bool = True) -> Path:
    """A base model's folder: weights of zeros, two layers, norms and biases beside the matrices."""
    folder.mkdir(parents=True)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (VOCAB, HIDDEN), "model.norm": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in MODULES.items()}
    if not tied:
        shapes["lm_head"] = (VOCAB, HIDDEN)
    weights = {f"{name}.weight": tensor(np.zeros(shape, np.float32), "BF16") for name, shape in shapes.items()}
    if shards == 1:
        write_safetensors(folder / "model.safetensors", weights)
        return folder
    names = list(weights)
    weight_map = {name: f"model-{at % shards + 1:05}-of-{shards:05}.safetensors" for at, name in enumerate(names)}
    for shard in sorted(set(weight_map.values())):
        write_safetensors(folder / shard, {name: weights[name] for name in names if weight_map[name] == shard})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


@dataclass(frozen=True)
class Adapter:
    """An adapter before it is written: the config's fields and the tensors by name."""

    config: dict[str, Any]
    tensors: dict[str, Tensor]

    def having(self, **config: Any) -> Adapter:
        """The same with config fields changed."""
        return replace(self, config=self.config | config)

    def with_tensors(self, **tensors: Tensor) -> Adapter:
        """The same with more tensors (dots in names written as in the file: pass with **)."""
        return replace(self, tensors=self.tensors | tensors)

    def write(self, folder: Path) -> Path:
        """Write the folder as PEFT does."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "adapter_config.json").write_text(json.dumps(self.config))
        write_safetensors(folder / "adapter_model.safetensors", self.tensors)
        return folder


def tensor_name(module: str, half: str) -> str:
    """The file's name for half A or B of a module."""
    return f"base_model.model.{module}.lora_{half}.weight"


def lora(module: str, rank: int, shape: tuple[int, int], dtype: str = "F32") -> dict[str, Tensor]:
    """A and B of one module, with small values."""
    rng = np.random.default_rng(len(module) + rank)
    a, b = rng.normal(0, 0.02, (rank, shape[1])), rng.normal(0, 0.02, (shape[0], rank))
    return {tensor_name(module, "A"): tensor(a, dtype), tensor_name(module, "B"): tensor(b, dtype)}


def good(
    *,
    rank: int = 8,
    names: tuple[str, ...] = ("self_attn.q_proj", "self_attn.v_proj"),
    dtype: str = "F32",
    layers: int = LAYERS,
    ranks: dict[str, int] | None = None,
) -> Adapter:
    """A plain adapter; `ranks` gives other ranks to modules whose path ends in a key."""
    tensors: dict[str, Tensor] = {}
    for layer in range(layers):
        for name in names:
            own = next((value for key, value in (ranks or {}).items() if name.endswith(key)), rank)
            tensors |= lora(f"model.layers.{layer}.{name}", own, MODULES[name], dtype)
    targets = sorted({name.rpartition(".")[2] for name in names})
    return Adapter(peft_config(rank, targets) | {"rank_pattern": ranks or {}}, tensors)


def peft_config(rank: int, targets: list[str]) -> dict[str, Any]:
    """The fields that PEFT 0.21 writes, at their defaults."""
    off: dict[str, Any] = {
        **dict.fromkeys(("auto_mapping", "revision", "exclude_modules", "modules_to_save", "layers_to_transform")),
        **dict.fromkeys(("layers_pattern", "megatron_config", "trainable_token_indices", "eva_config", "corda_config")),
        **dict.fromkeys(("lora_ga_config", "velora_config", "alora_invocation_tokens", "monteclora_config")),
        **dict.fromkeys(("layer_replication", "target_parameters", "use_bdlora", "arrow_config", "kasa_config")),
    }
    flags = dict.fromkeys(("fan_in_fan_out", "use_rslora", "use_dora", "use_qalora", "lora_bias"), False)
    return (
        off
        | flags
        | {
            "task_type": "CAUSAL_LM",
            "peft_type": "LORA",
            "peft_version": "0.21.2",
            "base_model_name_or_path": BASE_NAME,
            "inference_mode": True,
            "r": rank,
            "target_modules": targets,
            "lora_alpha": 2 * rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "init_lora_weights": True,
            "rank_pattern": {},
            "alpha_pattern": {},
            "megatron_core": "megatron.core",
            "loftq_config": {},
            "qalora_group_size": 16,
        }
    )
