"""Shapes of a base model's own weights, from its safetensors headers: what adapters are measured against.

Base models belong to the operator, so links are followed (hub caches are made of them) and headers may be large. No
weight is read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from registry.adapter_files.strict_json import BadJsonError, parse_object
from registry.errors import ConfigurationError

MAX_BASE_HEADER_BYTES: Final = 100 * 1024 * 1024
_WEIGHT: Final = ".weight"


def base_shapes(model_dir: Path) -> dict[str, tuple[int, int]]:
    """Module path -> (out, in) for every two-dimensional weight; a tied `lm_head` has the embedding's shape.

    Sharded models are read whole. Raises ConfigurationError if the folder holds no readable safetensors model.
    """
    shapes: dict[str, tuple[int, int]] = {}
    for path in _weight_files(model_dir):
        for name, entry in _header(path).items():
            shape = entry.get("shape") if isinstance(entry, dict) else None
            if name.endswith(_WEIGHT) and isinstance(shape, list) and len(shape) == 2:
                shapes[name.removesuffix(_WEIGHT)] = (int(shape[0]), int(shape[1]))
    if not shapes:
        raise ConfigurationError(f"{model_dir} has no safetensors weights with two dimensions; is it a model folder?")
    _add_tied_head(shapes)
    return shapes


def _weight_files(model_dir: Path) -> list[Path]:
    index = model_dir / "model.safetensors.index.json"
    if not index.is_file():
        return sorted(model_dir.glob("*.safetensors"))
    try:
        shards = {str(name) for name in json.loads(index.read_bytes())["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigurationError(f"{index} is not an index of safetensors shards.") from None
    return [model_dir / name for name in sorted(shards)]


def _header(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MAX_BASE_HEADER_BYTES:
                raise ConfigurationError(f"{path} claims a header of {length} bytes; it is damaged.")
            return parse_object(file.read(length))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except BadJsonError as error:
        raise ConfigurationError(f"{path} has a damaged header: {error}.") from None


def _add_tied_head(shapes: dict[str, tuple[int, int]]) -> None:
    """Bases with tied embeddings store no `lm_head`, yet an adapter may name it and must be understood."""
    embeddings = [name for name in shapes if name.endswith("embed_tokens")]
    if "lm_head" not in shapes and len(embeddings) == 1:
        shapes["lm_head"] = shapes[embeddings[0]]
