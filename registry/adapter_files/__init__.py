"""The gate for tenants' adapter files: reads a PEFT folder without any model library and says what is wrong with it.

vLLM serves many broken adapters silently (wrong shapes, wrong scaling, missing layers, NaN), so nothing reaches a
worker before it has passed here. What is accepted, and every reason for a refusal, stands in `docs/adapters.md`.

Use `take` to copy the two files out of a folder, `check` to accept or refuse them, `problems` to list all that is
wrong. Nothing in this package may import a model library, run code from a folder, follow a link, or read a tensor file
whole.
"""

from registry.adapter_files.base import base_shapes
from registry.adapter_files.checks import AdapterFacts, check, problems
from registry.adapter_files.folder import CONFIG_NAME, WEIGHTS_NAME, digest, take
from registry.adapter_files.reasons import REPAIRS, Problem

__all__ = [
    "CONFIG_NAME",
    "REPAIRS",
    "WEIGHTS_NAME",
    "AdapterFacts",
    "Problem",
    "base_shapes",
    "check",
    "digest",
    "problems",
    "take",
]
