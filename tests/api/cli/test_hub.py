"""Base models by hub id: the cache first, clear words when the hub is away."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from api.cli import hub
from registry.errors import ConfigurationError, InvalidField

pytest.importorskip("huggingface_hub")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and a hub that cannot be reached."""
    from huggingface_hub import constants

    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


def _cached_model(cache: Path, base: Path) -> Path:
    """A snapshot of `owner/tiny` as the hub's library lays it out."""
    home = cache / "models--owner--tiny"
    shutil.copytree(base, home / "snapshots" / COMMIT)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(COMMIT)
    return home / "snapshots" / COMMIT


def test_a_cached_model_is_found_with_its_exact_revision(cache: Path, tiny_base_dir: Path) -> None:
    snapshot = _cached_model(cache, tiny_base_dir)
    assert hub.find("owner/tiny", None) == (snapshot, COMMIT)


def test_a_half_downloaded_model_does_not_count_as_cached(cache: Path, tiny_base_dir: Path) -> None:
    (_cached_model(cache, tiny_base_dir) / "model.safetensors").unlink()
    with pytest.raises(ConfigurationError, match="--path"):
        hub.find("owner/tiny", None)


def test_an_unreachable_hub_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="cannot be reached"):
        hub.find("owner/absent", None)


def test_what_is_no_hub_id_is_refused() -> None:
    with pytest.raises(InvalidField, match="owner/model"):
        hub.find("not a hub id", None)


def test_without_the_package_the_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigurationError, match=r"lorry\[cpu\]"):
        hub.find("owner/tiny", None)
