"""One bad adapter folder per attack or mistake: name -> (the reason expected first, a maker that writes the folder)."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.registry.adapter_corpus import (
    HIDDEN,
    VOCAB,
    file_bytes,
    good,
    header_of,
    lora,
    tensor,
    tensor_name,
)

Maker = Callable[[Path], object]
Q0 = "model.layers.0.self_attn.q_proj"
Q0_A, Q0_B = tensor_name(Q0, "A"), tensor_name(Q0, "B")


def _poisoned(value: float, dtype: str = "F32") -> Maker:
    array = np.full((8, HIDDEN), 0.01, np.float32)
    array[7, 63] = value
    return good(dtype=dtype).with_tensors(**{Q0_A: tensor(array, dtype)}).write


def _without(*names: str) -> Maker:
    plain = good()
    return replace(plain, tensors={key: item for key, item in plain.tensors.items() if key not in names}).write


def _renamed(old: str, new: str) -> Maker:
    plain = good()
    return replace(plain, tensors={key.replace(old, new): item for key, item in plain.tensors.items()}).write


def _weights(raw: bytes) -> Maker:
    def make(folder: Path) -> None:
        good().write(folder)
        (folder / "adapter_model.safetensors").write_bytes(raw)

    return make


def _header(header: str | bytes, data: bytes = b"") -> Maker:
    return _weights(file_bytes(header.encode() if isinstance(header, str) else header, data))


def _edited(edit: Callable[[dict[str, Any]], object], extra: bytes = b"") -> Maker:
    """A good file whose header was edited."""
    tensors = good().tensors
    header = header_of(tensors)
    edit(header)
    return _header(json.dumps(header), b"".join(item.data for item in tensors.values()) + extra)


def _shifted(start: int, end: int) -> Maker:
    def edit(header: dict[str, Any]) -> None:
        offsets = header[Q0_B]["data_offsets"]
        header[Q0_B]["data_offsets"] = [offsets[0] + start, offsets[1] + end]

    return _edited(edit)


def _config(raw: bytes) -> Maker:
    def make(folder: Path) -> None:
        good().write(folder)
        (folder / "adapter_config.json").write_bytes(raw)

    return make


def _then(change: Callable[[Path], object]) -> Maker:
    def make(folder: Path) -> None:
        good().write(folder)
        change(folder)

    return make


def _link(name: str) -> Maker:
    def change(folder: Path) -> None:
        real = folder.parent / f"{folder.name}-outside-{name}"
        (folder / name).rename(real)
        (folder / name).symlink_to(real)

    return _then(change)


def _pipe(folder: Path) -> None:
    (folder / "adapter_model.safetensors").unlink()
    os.mkfifo(folder / "adapter_model.safetensors")


def _pickled(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


def _swapped(folder: Path) -> None:
    swapped = {Q0_A: good().tensors[Q0_B], Q0_B: good().tensors[Q0_A]}
    good().with_tensors(**swapped).write(folder)


def _data_cut(folder: Path) -> None:
    path = good().write(folder) / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-7])


def _one(dtype: str, shape: str, offsets: str) -> str:
    return f'{{"{Q0_A}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}'


_MILLION = "{" + ",".join(f'"{at}":{{}}' for at in range(80_000)) + "}"
_WIDE = lora(Q0, 8, (HIDDEN, 2 * HIDDEN))
_EMBEDDING = {
    "base_model.model.model.embed_tokens.lora_embedding_A": tensor(np.zeros((8, VOCAB))),
    "base_model.model.model.embed_tokens.lora_embedding_B": tensor(np.zeros((HIDDEN, 8))),
}

_INFINITE_ALPHA = json.dumps(good().config).replace('"lora_alpha": 16', '"lora_alpha": 1e999').encode()

BAD: dict[str, tuple[str, Maker]] = {
    # Folder and pickles.
    "pickle by name": ("pickle_file", _then(_pickled)),
    "pickle beside": ("pickle_file", _then(lambda folder: (folder / "adapter_model.pt").write_bytes(b"x"))),
    "pickle renamed": ("pickle_file", _weights(pickle.dumps({"a": 1}, protocol=2) + b"0" * 16)),
    "pickle renamed, protocol 4": ("pickle_file", _weights(pickle.dumps({"a": list(range(99))}, protocol=4))),
    "zip renamed": ("pickle_file", _weights(b"PK\x03\x04" + b"\0" * 64)),
    "no config": ("config_missing", _then(lambda folder: (folder / "adapter_config.json").unlink())),
    "no weights": ("weights_missing", _then(lambda folder: (folder / "adapter_model.safetensors").unlink())),
    "empty folder": ("config_missing", lambda folder: folder.mkdir(exist_ok=True)),
    "no folder": ("folder_missing", lambda folder: folder.rmdir()),
    "weights are a link": ("not_a_file", _link("adapter_model.safetensors")),
    "config is a link": ("not_a_file", _link("adapter_config.json")),
    "weights are a pipe": ("not_a_file", _then(_pipe)),
    "too large": ("too_large", _weights(bytes(3 * 2**20))),
    # The header.
    "empty file": ("truncated", _weights(b"")),
    "five bytes": ("truncated", _weights(b"12345")),
    "length 2^63": ("header_too_large", _weights(struct.pack("<Q", 2**63) + b"{}" + b"\0" * 64)),
    "length 90 MiB": ("header_too_large", _weights(struct.pack("<Q", 90 * 2**20) + b"{}" + b"\0" * 64)),
    "header cut": ("truncated", _weights(struct.pack("<Q", 4000) + b"{}")),
    "data cut": ("truncated", _data_cut),
    "random bytes": ("header_too_large", _weights(np.random.default_rng(1).bytes(5000))),
    "not JSON": ("header_invalid", _header("{nonsense")),
    "not UTF-8": ("header_invalid", _header(b'{"\xff\xfe":1}')),
    "a list": ("header_invalid", _header("[]")),
    "leading blank": ("header_invalid", _header("  {}")),
    "NaN in header": ("header_invalid", _header(_one("F32", "[NaN,1]", "[0,4]"))),
    "deep nesting": ("header_invalid", _header('{"a":' + "[" * 8000 + "]" * 8000 + "}")),
    "huge number": ("header_invalid", _header('{"a":' + "9" * 900_000 + "}")),
    "unknown field": ("header_invalid", _edited(lambda header: header[Q0_A].update(code="x"))),
    "metadata bomb": ("metadata_too_large", _edited(lambda header: header.update(__metadata__={"a": "x" * 9000}))),
    "metadata of lists": ("header_invalid", _edited(lambda header: header.update(__metadata__={"a": []}))),
    "many tensors": ("too_many_tensors", _header(_MILLION)),
    "duplicate tensor": ("duplicate_tensor", _header(f'{{"{Q0_A}":{{}},"{Q0_A}":{{}}}}')),
    "one dimension": ("tensor_dims", _header(_one("F32", "[4]", "[0,16]"), b"\0" * 16)),
    "many dimensions": ("tensor_dims", _header(_one("F32", "[" + "1," * 30000 + "1]", "[0,4]"), b"\0" * 4)),
    "zero dimension": ("tensor_dims", _header(_one("F32", "[0,64]", "[0,0]"))),
    "negative dimension": ("tensor_dims", _header(_one("F32", "[-1,-4]", "[0,16]"), b"\0" * 16)),
    "product overflows": ("tensor_dims", _header(_one("F32", f"[{2**62},4]", "[0,0]"))),
    "true as dimension": ("tensor_dims", _header(_one("F32", "[true,4]", "[0,16]"), b"\0" * 16)),
    "size contradicts shape": ("tensor_size", _header(_one("F32", "[8,64]", "[0,4]"), b"\0" * 4)),
    "overlap": ("tensor_layout", _shifted(-64, -64)),
    "hole": ("tensor_layout", _shifted(64, 64)),
    "trailing bytes": ("tensor_layout", _edited(lambda header: None, b"PK\x05\x06")),
    "offsets backwards": ("tensor_layout", _header(_one("F32", "[1,1]", "[4,0]"), b"\0" * 4)),
    "float64": ("dtype_unsupported", good().with_tensors(**{Q0_A: tensor(np.zeros((8, HIDDEN)), "F64")}).write),
    "int8": ("dtype_unsupported", _header(_one("I8", "[2,2]", "[0,4]"), b"\0" * 4)),
    # The config.
    "config not JSON": ("config_invalid", _config(b"{'r': 8}")),
    "config twice r": ("config_invalid", _config(b'{"peft_type":"LORA","r":8,"r":64}')),
    "config bomb": ("config_too_large", _config(b" " * 400_000)),
    "IA3": ("peft_type_unsupported", good().having(peft_type="IA3").write),
    "other base": ("base_mismatch", good().having(base_model_name_or_path="other/base").write),
    "no base": ("base_mismatch", good().having(base_model_name_or_path=None).write),
    "rank above": ("rank_too_high", good(rank=32).write),
    "rank above in pattern": ("rank_too_high", good(ranks={"q_proj": 64}).write),
    "rank zero": ("rank_invalid", good().having(r=0).write),
    "rank as text": ("rank_invalid", good().having(r="8").write),
    "rank pattern of text": ("rank_invalid", good().having(rank_pattern={"q_proj": "8"}).write),
    "alpha too large": ("alpha_invalid", good().having(lora_alpha=8 * 32 + 1).write),
    "alpha zero": ("alpha_invalid", good().having(lora_alpha=0).write),
    "alpha 1e999": ("alpha_invalid", _config(_INFINITE_ALPHA)),
    "alpha pattern too large": ("alpha_invalid", good().having(alpha_pattern={"q_proj": 9999}).write),
    "DoRA": ("dora_unsupported", good().having(use_dora=True).write),
    "modules_to_save": ("modules_to_save_unsupported", good().having(modules_to_save=["lm_head"]).write),
    "token indices": ("modules_to_save_unsupported", good().having(trainable_token_indices=[1, 2]).write),
    "bias": ("bias_unsupported", good().having(bias="lora_only").write),
    "lora_bias": ("bias_unsupported", good().having(lora_bias=True).write),
    "PiSSA": ("init_unsupported", good().having(init_lora_weights="pissa").write),
    "LoftQ": ("init_unsupported", good().having(init_lora_weights="loftq").write),
    "auto_map": ("remote_code", good().having(auto_map={"AutoModel": "x.Y"}).write),
    "aLoRA": ("option_unsupported", good().having(alora_invocation_tokens=[1]).write),
    "layer replication": ("option_unsupported", good().having(layer_replication=[[0, 2], [0, 2]]).write),
    "future option": ("option_unsupported", good().having(use_hyperlora=True).write),
    "rank pattern bomb": ("pattern_unsupported", good().having(rank_pattern={"(a|a)*(b|b)*": 8}).write),
    "target bomb": ("pattern_unsupported", good().having(target_modules="((.*)*)*x").write),
    # Tensors against base and config.
    "no tensors": ("no_tensors", _header("{}")),
    "lora_A only": ("unpaired_tensor", _without(Q0_B)),
    "A and B swapped": ("shape_mismatch", _swapped),
    "A and B of different ranks": (
        "shape_mismatch",
        good().with_tensors(**{Q0_B: tensor(np.zeros((HIDDEN, 4)))}).write,
    ),
    "other width": ("shape_mismatch", good().with_tensors(**_WIDE).write),
    "unknown module": ("unknown_module", _renamed("self_attn.q_proj", "attention.wq")),
    "other prefix": ("unknown_module", _renamed("base_model.model.model.", "base_model.model.")),
    "deeper base": ("layer_missing", good(layers=4).write),
    "norm trained": ("unknown_module", good().having(target_modules=["q_proj", "v_proj", "norm"]).write),
    "embedding": ("embedding_unsupported", good().with_tensors(**_EMBEDDING).write),
    "lm_head targeted": ("embedding_unsupported", good().having(target_modules=["q_proj", "v_proj", "lm_head"]).write),
    "full tensor": ("unexpected_tensor", _renamed("q_proj.lora_A.weight", "q_proj.weight")),
    "config r=4, tensors r=8": ("rank_mismatch", good(rank=8).having(r=4).write),
    "pattern says 4, tensors 8": ("rank_mismatch", good().having(rank_pattern={"q_proj": 4}).write),
    "k_proj not there": ("missing_tensors", good().having(target_modules=["q_proj", "k_proj", "v_proj"]).write),
    "one layer not there": ("missing_tensors", good(layers=1).write),
    "v_proj not named": ("untargeted_tensor", good().having(target_modules=["q_proj"]).write),
    "layer excluded but there": ("untargeted_tensor", good().having(layers_to_transform=[0]).write),
    # Values.
    "NaN": ("values_nan", _poisoned(float("nan"))),
    "NaN in bf16": ("values_nan", _poisoned(float("nan"), "BF16")),
    "infinity": ("values_infinite", _poisoned(float("-inf"))),
    "infinity in f16": ("values_infinite", _poisoned(float("inf"), "F16")),
    "1e30": ("values_absurd", _poisoned(1e30)),
    "-20000 in bf16": ("values_absurd", _poisoned(-20000.0, "BF16")),
}
