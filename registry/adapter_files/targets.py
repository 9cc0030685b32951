"""Which of the base's modules the config says were trained, as PEFT decides it.

The answer is compared with the tensors: a config that names a module without tensors, or tensors of a module that the
config does not name, come from two different training runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from registry.adapter_files.config import AdapterConfig
from registry.adapter_files.patterns import Pattern, UnsupportedPatternError
from registry.adapter_files.reasons import Findings, quoted

SERVED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
EMBEDDINGS = ("embed_tokens", "lm_head")


def leaf(module: str) -> str:
    """The last part of a module path."""
    return module.rpartition(".")[2]


def expected(config: AdapterConfig, modules: Iterable[str], findings: Findings) -> set[str] | None:
    """The modules among `modules` that the config targets; None if it cannot be told (reported in `findings`)."""
    candidates = list(modules)
    try:
        targeted, excluded = _matcher(config.targets), _matcher(config.excluded)
    except UnsupportedPatternError as error:
        findings.add("pattern_unsupported", f"target_modules or exclude_modules cannot be matched: {error}.")
        return None
    chosen = {module for module in candidates if targeted(module) and not excluded(module)}
    if isinstance(config.targets, list):
        _check_names(config.targets, candidates, findings)
        chosen = {module for module in chosen if _in_layers(config, module)}
    return chosen


def _matcher(names: list[str] | str) -> Callable[[str], bool]:
    if names == "all-linear":
        return lambda module: leaf(module) in SERVED
    if isinstance(names, str):
        return Pattern(names).matches
    exact, ends = frozenset(names), tuple(f".{name}" for name in names)
    return lambda module: module in exact or module.endswith(ends)


def _check_names(names: list[str], modules: list[str], findings: Findings) -> None:
    if not names:
        findings.add("config_invalid", "target_modules names nothing.")
    for name in names:
        if leaf(name) in EMBEDDINGS:
            findings.add("embedding_unsupported", f"target_modules names {quoted(name)}; embeddings are not served.")
        elif not any(module == name or module.endswith(f".{name}") for module in modules):
            findings.add("unknown_module", f"target_modules names {quoted(name)}, which the base does not have.")
        elif leaf(name) not in SERVED:
            findings.add("module_unsupported", f"target_modules names {quoted(name)}, which is not served with LoRA.")


def _in_layers(config: AdapterConfig, module: str) -> bool:
    """PEFT's layers_to_transform: the first numbered part of the path is the layer."""
    if config.layers is None:
        return True
    parts = module.split(".")
    for parent, part in pairwise(parts):
        if part.isdigit() and (not config.layer_parents or parent in config.layer_parents):
            return int(part) in config.layers
    return False
