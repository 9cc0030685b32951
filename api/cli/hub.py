"""Base models by hub id: from the local cache when they are there, else downloaded.

`huggingface_hub` comes with the worker's packages and is no dependency of the API: imported when asked for.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from registry import base_models
from registry.errors import ConfigurationError, InvalidField

# Weights as safetensors only; many hub models carry the same weights a second time in another form.
_WANTED = ("*.json", "*.jinja", "*.safetensors", "tokenizer*")
_UNWANTED = ("original/*", "onnx/*", "*/*.safetensors")


def find(hub_id: str, revision: str | None) -> tuple[Path, str | None]:
    """The model's folder and exact revision. Raises ConfigurationError (not installed, unreachable) or InvalidField."""
    try:
        library: Any = importlib.import_module("huggingface_hub")
        problems: Any = importlib.import_module("huggingface_hub.errors")
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            "--hub needs the package huggingface_hub: install lorry[cpu] or lorry[gpu], or give --path.", param="hub"
        ) from missing
    folder = _cached(library, problems, hub_id, revision) or _download(library, problems, hub_id, revision)
    return folder, folder.name


def _cached(library: Any, problems: Any, hub_id: str, revision: str | None) -> Path | None:
    """The snapshot in the cache, if it is complete enough to serve."""
    try:
        folder = Path(library.snapshot_download(hub_id, revision=revision, local_files_only=True))
        base_models.check_folder(folder)
    except (problems.LocalEntryNotFoundError, InvalidField):
        return None
    except problems.HFValidationError as error:
        raise InvalidField(f"{hub_id!r} is no hub id: it looks like owner/model.", param="hub") from error
    return folder


def _download(library: Any, problems: Any, hub_id: str, revision: str | None) -> Path:
    """The snapshot from the hub. Away from the hub the library hands out what is cached, complete or not."""
    try:
        folder = Path(
            library.snapshot_download(hub_id, revision=revision, allow_patterns=_WANTED, ignore_patterns=_UNWANTED)
        )
        base_models.check_folder(folder)
        return folder
    except InvalidField as incomplete:
        raise ConfigurationError(
            f"What the hub's cache has of {hub_id!r} cannot serve: {incomplete.message} If the download was cut short, "
            "go online and try again; if the model has no such file, convert it and give --path.",
            param="hub",
        ) from incomplete
    except (problems.RepositoryNotFoundError, problems.RevisionNotFoundError) as error:
        raise InvalidField(
            f"The hub has no {hub_id!r} at this revision, or it is private: check the id or log in: `hf auth login`.",
            param="hub",
        ) from error
    except (problems.LocalEntryNotFoundError, problems.OfflineModeIsEnabled, problems.HfHubHTTPError, OSError) as error:
        raise ConfigurationError(
            f"{hub_id!r} is not in the hub's cache and the hub cannot be reached. Go online, or copy the model here "
            "and give --path.",
            param="hub",
        ) from error
