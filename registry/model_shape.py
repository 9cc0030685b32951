"""A base model's folder as numbers for `sizing`: from its config and the headers of its weights. Loads no weight."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from registry.adapter_files import base_shapes
from registry.errors import ConfigurationError
from registry.sizing import ModelShape

BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


def read(folder: Path, dtype: str) -> ModelShape:
    """Raises ConfigurationError for a folder that is no model, or whose config lacks what a KV cache is made of."""
    config = _config(folder)
    width = BYTES[dtype]
    try:
        heads = int(config["num_attention_heads"])
        head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
        kv_heads = int(config.get("num_key_value_heads") or heads)
        kv_bytes = 2 * int(config["num_hidden_layers"]) * kv_heads * head_dim * width
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        raise ConfigurationError(f"{folder / 'config.json'} does not say how large its KV cache is.") from None
    files = [file.stat().st_size for file in folder.glob("*.safetensors")]
    return ModelShape(sum(files), kv_bytes, width * sum(sum(shape) for shape in base_shapes(folder).values()))


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise ConfigurationError(f"{folder} has no readable config.json; is it a model folder?") from None
    nested = found.get("text_config") if isinstance(found, dict) else None
    config: dict[str, Any] = nested if isinstance(nested, dict) else found if isinstance(found, dict) else {}
    return config
