"""The whole examination of a folder, once: `problems` lists what it finds, `check` raises the first or gives the facts.

Order: folder, config, header, tensors against base and config, values, digest. A later step is left out when what it
needs is unreadable, so that one fault is not reported as ten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from registry.adapter_files import header, targets
from registry.adapter_files.config import ALPHA_PER_RANK, AdapterConfig, parse
from registry.adapter_files.folder import CONFIG_NAME, WEIGHTS_NAME, digest, read_config_bytes, survey
from registry.adapter_files.header import TensorInfo
from registry.adapter_files.pairs import Shapes, check_pairs, lora_pairs
from registry.adapter_files.reasons import Findings, Problem, quoted
from registry.adapter_files.values import check_values
from registry.errors import AdapterRejected


@dataclass(frozen=True)
class AdapterFacts:
    """What an accepted adapter is. `rank` is the largest in the config; `dtype` is F32, F16, BF16 or `mixed`.

    `size_bytes` counts both files, `digest` is described at `folder.digest`, `left_behind` names the files of the
    folder that are not taken, `files` are the two that are (config, weights).
    """

    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    dtype: str
    size_bytes: int
    digest: str
    base_model_name_or_path: str | None
    left_behind: tuple[str, ...]
    files: tuple[Path, Path]


@dataclass(frozen=True)
class Limits:
    """What an adapter is measured against: base shapes and names (name and aliases), rank ceiling, size in bytes."""

    base_shapes: Shapes
    base_names: Collection[str]
    max_rank: int
    max_bytes: int
    base_stated: bool


def check(
    folder: Path,
    *,
    base_shapes: Mapping[str, tuple[int, int]],
    base_names: Collection[str],
    max_rank: int,
    max_bytes: int,
    base_stated: bool = False,
) -> AdapterFacts:
    """Accept the folder, or raise AdapterRejected with the first problem's reason and repair, counting the others.

    `base_stated` says that the caller named the base on purpose, so that the name in the config is not compared; shapes
    always are.
    """
    limits = Limits(base_shapes, base_names, max_rank, max_bytes, base_stated)
    findings, facts = _examine(folder, limits)
    if facts is not None:
        return facts
    first, others = findings.kept[0], findings.total - 1
    more = f" ({others} more: `lorry adapters check` lists them.)" if others else ""
    raise AdapterRejected(first.message + more, reason=first.reason, repair=first.repair)


def problems(
    folder: Path,
    *,
    base_shapes: Mapping[str, tuple[int, int]],
    base_names: Collection[str],
    max_rank: int,
    max_bytes: int,
    base_stated: bool = False,
) -> list[Problem]:
    """Everything wrong with the folder, first cause first; empty if `check` would accept it."""
    limits = Limits(base_shapes, base_names, max_rank, max_bytes, base_stated)
    return _examine(folder, limits)[0].listed()


def _examine(folder: Path, limits: Limits) -> tuple[Findings, AdapterFacts | None]:
    findings = Findings()
    left_behind = survey(folder, findings, limits.max_bytes)
    config = _config(folder / CONFIG_NAME, limits, findings)
    tensors = _tensors(folder / WEIGHTS_NAME, findings)
    modules: set[str] = set()
    if tensors is not None:
        pairs = lora_pairs(tensors, findings)
        check_pairs(pairs, limits.base_shapes, config, findings)
        modules = set(pairs)
        if config is not None:
            _check_alphas(config, modules & limits.base_shapes.keys(), findings)
            _check_targets(config, modules, limits.base_shapes, findings)
        if "too_large" not in findings.counts:
            _absorbing_values(folder / WEIGHTS_NAME, tensors, findings)
    if findings.total or config is None or tensors is None:
        return findings, None
    return findings, _facts(folder, config, tensors, modules, left_behind)


def _config(path: Path, limits: Limits, findings: Findings) -> AdapterConfig | None:
    if not path.parent.is_dir() or "config_missing" in findings.counts:
        return None
    try:
        config = parse(read_config_bytes(path), findings)
    except AdapterRejected as refusal:
        findings.absorb(refusal)
        return None
    if config is None:
        return None
    if config.max_rank > limits.max_rank:
        findings.add("rank_too_high", f"Rank {config.max_rank} is above the ceiling of {limits.max_rank}.")
    named = config.base_model_name_or_path
    if not limits.base_stated and (named is None or named.rstrip("/") not in limits.base_names):
        findings.add("base_mismatch", f"The adapter says its base is {quoted(named)}, which is no name of this base.")
    return config


def _tensors(path: Path, findings: Findings) -> dict[str, TensorInfo] | None:
    if not path.is_symlink() and not path.exists():
        return None
    try:
        return header.read(path)
    except AdapterRejected as refusal:
        findings.absorb(refusal)
        return None


def _check_alphas(config: AdapterConfig, modules: set[str], findings: Findings) -> None:
    for module in sorted(modules):
        alpha, rank = config.alpha_of(module), config.rank_of(module)
        if alpha > ALPHA_PER_RANK * rank:
            findings.add("alpha_invalid", f"Module {quoted(module)} has alpha {alpha:g}, too much for rank {rank}.")


def _check_targets(config: AdapterConfig, modules: set[str], shapes: Shapes, findings: Findings) -> None:
    wanted = targets.expected(config, shapes, findings)
    if wanted is None:
        return
    for module in sorted(wanted - modules):
        if targets.leaf(module) in targets.SERVED:
            findings.add("missing_tensors", f"The config targets {quoted(module)}, which has no tensors.")
    for module in sorted((modules & shapes.keys()) - wanted):
        findings.add("untargeted_tensor", f"Module {quoted(module)} has tensors but the config does not target it.")


def _absorbing_values(path: Path, tensors: Mapping[str, TensorInfo], findings: Findings) -> None:
    try:
        check_values(path, tensors, findings)
    except AdapterRejected as refusal:
        findings.absorb(refusal)


def _facts(
    folder: Path,
    config: AdapterConfig,
    tensors: Mapping[str, TensorInfo],
    modules: set[str],
    left_behind: tuple[str, ...],
) -> AdapterFacts:
    files = (folder / CONFIG_NAME, folder / WEIGHTS_NAME)
    dtypes = {info.dtype for info in tensors.values()}
    return AdapterFacts(
        rank=config.max_rank,
        alpha=config.alpha,
        target_modules=tuple(sorted({targets.leaf(module) for module in modules})),
        dtype=dtypes.pop() if len(dtypes) == 1 else "mixed",
        size_bytes=sum(file.stat().st_size for file in files),
        digest=digest(folder),
        base_model_name_or_path=config.base_model_name_or_path,
        left_behind=left_behind,
        files=files,
    )
