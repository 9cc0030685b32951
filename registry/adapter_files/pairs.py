"""LoRA tensors against the base's own shapes: names, pairs, ranks and sizes.

vLLM copies a tensor of the wrong size into a corner of its slot and serves the result, so every size is compared here.
A is (rank, in) and B is (out, rank).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from registry.adapter_files.config import AdapterConfig
from registry.adapter_files.header import TensorInfo
from registry.adapter_files.reasons import Findings, quoted
from registry.adapter_files.targets import EMBEDDINGS, SERVED, leaf

_LORA: Final = re.compile(r"base_model\.model\.([\w.]+)\.lora_([AB])\.weight", re.ASCII)
_LAYER: Final = re.compile(r"(.*?\.)(\d+)(\..*)", re.ASCII)

Shapes = Mapping[str, tuple[int, int]]


def lora_pairs(tensors: Mapping[str, TensorInfo], findings: Findings) -> dict[str, dict[str, tuple[int, int]]]:
    """Module path -> {"A": shape, "B": shape}; tensors that are not LoRA weights are reported."""
    pairs: dict[str, dict[str, tuple[int, int]]] = {}
    for name, info in tensors.items():
        if found := _LORA.fullmatch(name):
            pairs.setdefault(found[1], {})[found[2]] = info.shape
        else:
            findings.add(_stranger(name), f"Tensor {quoted(name)} is not a LoRA weight that can be served.")
    if not pairs:
        findings.add("no_tensors", "The weights file has no LoRA tensors.")
    return pairs


def _stranger(name: str) -> str:
    if any(f".{embedding}." in name for embedding in EMBEDDINGS) or ".lora_embedding_" in name:
        return "embedding_unsupported"
    if ".lora_magnitude_vector" in name:
        return "dora_unsupported"
    if ".modules_to_save." in name:
        return "modules_to_save_unsupported"
    return "bias_unsupported" if name.endswith(".bias") else "unexpected_tensor"


def check_pairs(
    pairs: Mapping[str, dict[str, tuple[int, int]]], shapes: Shapes, config: AdapterConfig | None, findings: Findings
) -> None:
    """Report modules that the base lacks, halves without the other, and sizes that contradict base or config."""
    for module, pair in pairs.items():
        if problem := _misplaced(module, shapes):
            findings.add(*problem)
        elif len(pair) < 2:
            findings.add("unpaired_tensor", f"Module {quoted(module)} has only lora_{'/'.join(pair)}.")
        else:
            _check_sizes(module, pair["A"], pair["B"], shapes[module], findings)
            if config is not None and pair["A"][0] == pair["B"][1] != config.rank_of(module):
                findings.add(
                    "rank_mismatch",
                    f"Module {quoted(module)} has rank {pair['A'][0]}; the config says {config.rank_of(module)}.",
                )


def _misplaced(module: str, shapes: Shapes) -> tuple[str, str] | None:
    if leaf(module) in EMBEDDINGS:
        return "embedding_unsupported", f"Module {quoted(module)} is an embedding, which is not served with LoRA."
    if module in shapes:
        if leaf(module) in SERVED:
            return None
        return "module_unsupported", f"Module {quoted(module)} is not served with LoRA."
    layer = _LAYER.fullmatch(module)
    if layer and f"{layer[1]}0{layer[3]}" in shapes:
        return "layer_missing", f"Module {quoted(module)} is in layer {layer[2][:8]}, which the base does not have."
    return "unknown_module", f"Module {quoted(module)} is not one of the base's."


def _check_sizes(
    module: str, a: tuple[int, int], b: tuple[int, int], base: tuple[int, int], findings: Findings
) -> None:
    out_size, in_size = base
    if a[1] != in_size or b[0] != out_size or a[0] != b[1]:
        findings.add(
            "shape_mismatch",
            f"Module {quoted(module)} has A {a} and B {b}; the base needs (rank, {in_size}) and ({out_size}, rank).",
        )
