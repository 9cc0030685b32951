"""Why an adapter is refused: the stable reason codes, how to repair each, and the list that collects problems.

`docs/adapters.md` has a row for every code; a test compares the two. Messages quote names from the tenant's files only
through `quoted`, which bounds them and strips control characters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from registry.errors import AdapterRejected

_SAVE_AGAIN: Final = "Save the adapter again with PEFT: model.save_pretrained(folder), which writes safetensors."
_RETRAIN_PLAIN: Final = "Train again as plain LoRA with this option left at its default."

REPAIRS: Final[dict[str, str]] = {
    # The folder.
    "folder_missing": "Name the folder that PEFT's save_pretrained wrote.",
    "config_missing": "Add the adapter_config.json that PEFT wrote beside the weights.",
    "weights_missing": _SAVE_AGAIN,
    "pickle_file": f"Pickles can run code. {_SAVE_AGAIN} Then remove the pickle file.",
    "not_a_file": "Replace the link or special file by a copy of the real file (cp -L).",
    "too_large": "Send a smaller adapter (lower rank, fewer modules, bf16), or ask the operator to raise the limit.",
    # The safetensors header.
    "truncated": "The file is cut short: copy or upload it again.",
    "header_too_large": f"No LoRA needs a header this large; the file is damaged or hostile. {_SAVE_AGAIN}",
    "header_invalid": f"The file is damaged. {_SAVE_AGAIN}",
    "metadata_too_large": "Save without extra metadata (at most 4 KiB).",
    "too_many_tensors": "Keep only the lora_A and lora_B weights (at most 4096 tensors).",
    "duplicate_tensor": _SAVE_AGAIN,
    "tensor_dims": "Keep only two-dimensional lora_A and lora_B weights.",
    "tensor_size": _SAVE_AGAIN,
    "tensor_layout": f"Tensor data must be contiguous, without overlaps, holes or bytes after the end. {_SAVE_AGAIN}",
    "dtype_unsupported": "Convert the weights to float32, float16 or bfloat16 before saving.",
    # The config.
    "config_too_large": "Restore the adapter_config.json that PEFT wrote (at most 256 KiB).",
    "config_invalid": "Restore the adapter_config.json that PEFT wrote.",
    "peft_type_unsupported": "Only peft_type LORA is served: train a LoRA adapter.",
    "base_mismatch": "Push for the base it was trained on; if this is that base under another name, state it: --base "
    "(base_model in the API's form).",
    "rank_invalid": "Set r and rank_pattern to the whole numbers used in training.",
    "rank_too_high": "Train with a lower rank, or use a deployment with a higher rank ceiling.",
    "alpha_invalid": "Set lora_alpha and alpha_pattern as in training: above 0, at most 32 times the rank.",
    "dora_unsupported": "Train again with use_dora=False, or merge and extract a plain LoRA.",
    "modules_to_save_unsupported": "Train again without modules_to_save (no new tokens, no full layers).",
    "bias_unsupported": 'Train again with bias="none" and lora_bias=False.',
    "init_unsupported": "Convert to a plain LoRA with PEFT's path_initial_model_for_weight_conversion and save again.",
    "remote_code": "Remove auto_map from adapter_config.json: adapters bring no code.",
    "option_unsupported": _RETRAIN_PLAIN,
    "pattern_unsupported": "Write the module names out instead of the pattern, for instance ['q_proj', 'v_proj'].",
    # Tensors against the base and the config.
    "no_tensors": "The file has no LoRA weights: save the trained adapter again.",
    "unexpected_tensor": "Keep only tensors named base_model.model.<module>.lora_A.weight and ...lora_B.weight.",
    "embedding_unsupported": "Train again without embed_tokens and lm_head and without resizing the vocabulary.",
    "unknown_module": "Train on this base as AutoModelForCausalLM loads it; module names must be the base's own.",
    "module_unsupported": "Train again on q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj and down_proj only.",
    "layer_missing": "The adapter belongs to a deeper base: push it for that one.",
    "unpaired_tensor": "Each module needs lora_A and lora_B: save the adapter again, whole.",
    "rank_mismatch": "Set r and rank_pattern in adapter_config.json to the ranks used in training.",
    "shape_mismatch": "The adapter belongs to a base of another width: push it for that one.",
    "missing_tensors": "Save the adapter again, whole, or take the untrained names out of target_modules.",
    "untargeted_tensor": "Restore the adapter_config.json of this training run: target_modules must name every module.",
    # Values.
    "values_nan": "Training diverged (NaN): go back to an earlier checkpoint or lower the learning rate.",
    "values_infinite": "Training overflowed: go back to an earlier checkpoint, or train in bfloat16 or float32.",
    "values_absurd": "Weights beyond 10000 are damage or divergence: save again or go back to an earlier checkpoint.",
}

_PER_REASON: Final = 5


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an adapter: stable code, a sentence, and what to do about it."""

    reason: str
    message: str
    repair: str


@dataclass
class Findings:
    """Problems in the order they were found; at most five of a reason are kept, the rest only counted."""

    kept: list[Problem] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many problems there are, the ones not kept included."""
        return sum(self.counts.values())

    def add(self, reason: str, message: str) -> None:
        """Record a problem of a reason that `REPAIRS` knows."""
        repair = REPAIRS[reason]
        self.counts[reason] = self.counts.get(reason, 0) + 1
        if self.counts[reason] <= _PER_REASON:
            self.kept.append(Problem(reason, message, repair))

    def absorb(self, refusal: AdapterRejected) -> None:
        """Record what a reader raised."""
        self.add(refusal.reason, refusal.message)

    def listed(self) -> list[Problem]:
        """What is kept, with one line for each reason that had more."""
        more = [
            Problem(reason, f"{count - _PER_REASON} more of this kind ({reason}).", REPAIRS[reason])
            for reason, count in self.counts.items()
            if count > _PER_REASON
        ]
        return self.kept + more


def reject(reason: str, message: str) -> AdapterRejected:
    """The exception for a problem after which reading cannot go on."""
    return AdapterRejected(message, reason=reason, repair=REPAIRS[reason])


def quoted(value: object) -> str:
    """A name or value from a tenant's file, in ASCII and at most about 80 characters long."""
    text = ascii(value[:200] if isinstance(value, str) else value)
    return text if len(text) <= 80 else text[:77] + "..."
