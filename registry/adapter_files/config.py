"""`adapter_config.json` against an allow-list: plain LoRA only, ranks and alphas in bounds, no code.

Keys that do not change what is served are ignored; a key that is not known here may only have an "off" value, so that a
newer PEFT's new options pass until somebody turns one on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeGuard

from registry.adapter_files.folder import CONFIG_NAME
from registry.adapter_files.ranks import MAX_KEYS, Number, PatternTable
from registry.adapter_files.reasons import Findings, quoted
from registry.adapter_files.strict_json import BadJsonError, parse_object

ALPHA_PER_RANK: Final = 4 * 8
MAX_NAMES: Final = 1024
_OFF: Final[tuple[object, ...]] = (None, False, "", [], {})
_BOOKKEEPING: Final = frozenset(
    ("peft_type", "task_type", "auto_mapping", "revision", "inference_mode", "peft_version", "megatron_core")
)
_TRAINING_ONLY: Final = frozenset(
    ("lora_dropout", "loftq_config", "eva_config", "corda_config", "lora_ga_config", "qalora_group_size")
)
_READ_HERE: Final = frozenset(
    ("base_model_name_or_path", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern", "bias")
) | frozenset(("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern", "init_lora_weights"))
_KNOWN: Final = _BOOKKEEPING | _TRAINING_ONLY | _READ_HERE | {"ensure_weight_tying"}
_OWN_REASON: Final = {
    "use_dora": "dora_unsupported",
    "modules_to_save": "modules_to_save_unsupported",
    "trainable_token_indices": "modules_to_save_unsupported",
    "lora_bias": "bias_unsupported",
    "auto_map": "remote_code",
}
# These change only the first weights of training, so what was saved is plain LoRA; PiSSA, OLoRA, CorDA and LoftQ
# change the base as well.
_PLAIN_INITS: Final = ("gaussian", "eva", "orthogonal")


@dataclass(frozen=True)
class AdapterConfig:
    """The part of the config that decides what is served; `targets` and the layer fields are as PEFT wrote them."""

    base_model_name_or_path: str | None
    rank: int
    alpha: float
    ranks: PatternTable[int]
    alphas: PatternTable[float]
    targets: list[str] | str
    excluded: list[str] | str
    layers: list[int] | None
    layer_parents: list[str]

    @property
    def max_rank(self) -> int:
        """The rank that vLLM compares with its ceiling: the largest one written, used or not."""
        return max(self.rank, max(self.ranks.values, default=1))

    def rank_of(self, module: str) -> int:
        """The rank the config gives a module."""
        value = self.ranks.find(module)
        return self.rank if value is None else value

    def alpha_of(self, module: str) -> float:
        """The alpha the config gives a module."""
        value = self.alphas.find(module)
        return self.alpha if value is None else value


def parse(raw: bytes, findings: Findings) -> AdapterConfig | None:
    """Read the config and report what is wrong in it; None if too little is sound to compare tensors with it."""
    try:
        fields = parse_object(raw)
    except BadJsonError as error:
        findings.add("config_invalid", f"{CONFIG_NAME} cannot be read: {error}.")
        return None
    if fields.get("peft_type") != "LORA":
        findings.add("peft_type_unsupported", f"peft_type is {quoted(fields.get('peft_type'))}, not LORA.")
        return None
    _check_options(fields, findings)
    return _Reader(fields, findings).config()


def _check_options(fields: dict[str, object], findings: Findings) -> None:
    for key, value in fields.items():
        if key not in _KNOWN and value not in _OFF:
            reason = _OWN_REASON.get(key, "option_unsupported")
            findings.add(reason, f"{CONFIG_NAME} sets {quoted(key)}, which is not served.")
    if fields.get("bias", "none") not in ("none", None):
        findings.add("bias_unsupported", f"bias is {quoted(fields['bias'])}; only none is served.")
    init = fields.get("init_lora_weights", True)
    if not (init is None or isinstance(init, bool) or init in _PLAIN_INITS):
        findings.add("init_unsupported", f"init_lora_weights is {quoted(init)}, which changes the base as well.")


class _Reader:
    """Takes the typed fields out of the parsed JSON; a field that is wrong is reported and makes the result None."""

    def __init__(self, fields: dict[str, object], findings: Findings) -> None:
        self._fields = fields
        self._findings = findings

    def config(self) -> AdapterConfig | None:
        rank, alpha = self._fields.get("r"), self._fields.get("lora_alpha")
        ranks = PatternTable(self._rows("rank_pattern", "rank_invalid", _is_rank))
        alphas = PatternTable(self._rows("alpha_pattern", "alpha_invalid", _is_alpha))
        for key in ranks.unsupported + alphas.unsupported:
            self._findings.add("pattern_unsupported", f"The pattern key {quoted(key)} is not plain enough.")
        if not _is_rank(rank):
            self._findings.add("rank_invalid", f"r is {quoted(rank)}, not a whole number above 0.")
            return None
        if not _is_alpha(alpha):
            self._findings.add("alpha_invalid", f"lora_alpha is {quoted(alpha)}, not a finite number above 0.")
            return None
        if not isinstance(self._fields.get("use_rslora", False), bool | None):
            self._findings.add("config_invalid", "use_rslora is neither true nor false.")
        base = self._fields.get("base_model_name_or_path")
        result = AdapterConfig(
            base_model_name_or_path=base if isinstance(base, str) else None,
            rank=rank,
            alpha=float(alpha),
            ranks=ranks,
            alphas=alphas,
            targets=self._names("target_modules"),
            excluded=self._names("exclude_modules"),
            layers=self._layers(),
            layer_parents=self._layer_parents(),
        )
        return None if self._field_was_wrong() else result

    def _field_was_wrong(self) -> bool:
        reasons = ("config_invalid", "pattern_unsupported", "rank_invalid", "alpha_invalid")
        return any(reason in self._findings.counts for reason in reasons)

    def _rows(self, key: str, reason: str, sound: Callable[[object], TypeGuard[Number]]) -> dict[str, Number]:
        value = self._fields.get(key) or {}
        if not isinstance(value, dict):
            self._findings.add("config_invalid", f"{key} is not an object.")
            return {}
        if len(value) > MAX_KEYS:
            self._findings.add("pattern_unsupported", f"{key} has {len(value)} keys; at most {MAX_KEYS}.")
            return {}
        rows = {name: number for name, number in value.items() if sound(number)}
        for name in value.keys() - rows.keys():
            self._findings.add(reason, f"{key} has {quoted(value[name])} for {quoted(name)}.")
        return rows

    def _names(self, key: str) -> list[str] | str:
        value = self._fields.get(key) or []
        if isinstance(value, str):
            return value
        if isinstance(value, list) and len(value) <= MAX_NAMES and all(isinstance(name, str) for name in value):
            return value
        self._findings.add("config_invalid", f"{key} is neither a list of at most {MAX_NAMES} names nor a pattern.")
        return []

    def _layers(self) -> list[int] | None:
        value = self._fields.get("layers_to_transform")
        if value is None or value == []:
            return None
        given = value if isinstance(value, list) else [value]
        layers = [layer for layer in given if type(layer) is int]
        if len(layers) < len(given):
            self._findings.add("config_invalid", "layers_to_transform is not a list of layer numbers.")
        return layers

    def _layer_parents(self) -> list[str]:
        value = self._fields.get("layers_pattern") or []
        parents = [value] if isinstance(value, str) else value
        if not isinstance(parents, list) or not all(isinstance(item, str) and item.isidentifier() for item in parents):
            self._findings.add("pattern_unsupported", "layers_pattern is not a plain module name.")
            return []
        return parents


def _is_rank(value: object) -> TypeGuard[int]:
    # JSON's true is an int to isinstance, so the type itself is asked.
    return type(value) is int and 1 <= value < 2**31


def _is_alpha(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**31
