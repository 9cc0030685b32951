"""The store: files kept by content, complete or absent, and never served when they are not what was registered."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from registry import adapter_files
from registry.errors import AdapterLoadFailed
from registry.store import Store
from tests.tiny_base import make_adapter_dir


@pytest.fixture
def folder(tmp_path: Path, tiny_base_dir: Path) -> Path:
    made = make_adapter_dir(tmp_path / "pushed", tiny_base_dir)
    (made / "README.md").write_text("left behind")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_two_files_are_kept_under_their_digest(store: Store, folder: Path) -> None:
    digest = adapter_files.digest(folder)
    home = store.put(folder, digest)
    assert home == store.root / "adapters" / digest[:2] / digest
    assert contents(home) == {n: b for n, b in contents(folder).items() if n != "README.md"}
    path, fetch_ms = store.local_path(str(home), digest)
    assert path == home
    assert 0 <= fetch_ms < 5000


def test_the_same_content_is_kept_once(store: Store, folder: Path, tmp_path: Path, tiny_base_dir: Path) -> None:
    twin = make_adapter_dir(tmp_path / "twin", tiny_base_dir)
    home = store.put(folder, adapter_files.digest(folder))
    stamp = (home / "adapter_model.safetensors").stat()
    assert store.put(twin, adapter_files.digest(twin)) == home
    assert (home / "adapter_model.safetensors").stat().st_ino == stamp.st_ino
    other = make_adapter_dir(tmp_path / "other", tiny_base_dir, seed=1)
    assert store.put(other, adapter_files.digest(other)) != home


def test_nothing_else_is_left_in_the_store(store: Store, folder: Path) -> None:
    home = store.put(folder, adapter_files.digest(folder))
    assert [path.name for path in home.parent.iterdir()] == [home.name]


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_tampered_file_is_refused_and_mended_by_the_next_push(store: Store, folder: Path, name: str) -> None:
    digest = adapter_files.digest(folder)
    home = store.put(folder, digest)
    (home / name).chmod(0o644)
    (home / name).write_bytes((home / name).read_bytes()[:-1] + b"?")
    with pytest.raises(AdapterLoadFailed, match="not those registered; push them again"):
        store.local_path(str(home), digest)
    assert store.put(folder, digest) == home
    assert store.local_path(str(home), digest)[0] == home
    assert [path.name for path in home.parent.iterdir()] == [home.name]
    assert len(contents(home)) == 2


def test_missing_files_are_refused_and_mended_by_the_next_push(store: Store, folder: Path) -> None:
    digest = adapter_files.digest(folder)
    home = store.put(folder, digest)
    (home / "adapter_config.json").unlink()
    for path in (home, store.root / "nowhere"):
        with pytest.raises(AdapterLoadFailed, match="not in the store; push them again"):
            store.local_path(str(path), digest)
    store.put(folder, digest)
    assert store.local_path(str(home), digest)[0] == home


def test_a_link_in_place_of_a_stored_file_is_refused(store: Store, folder: Path) -> None:
    digest = adapter_files.digest(folder)
    home = store.put(folder, digest)
    (home / "adapter_config.json").unlink()
    (home / "adapter_config.json").symlink_to(folder / "adapter_config.json")
    with pytest.raises(AdapterLoadFailed):
        store.local_path(str(home), digest)


def test_files_that_changed_after_their_check_are_not_kept(store: Store, folder: Path) -> None:
    digest = adapter_files.digest(folder)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(AdapterLoadFailed, match="changed while they were being stored"):
        store.put(folder, digest)
    assert not (store.root / "adapters" / digest[:2] / digest).exists()


def test_pushes_of_the_same_content_at_once_all_get_a_whole_folder(store: Store, folder: Path) -> None:
    digest = adapter_files.digest(folder)
    gate = threading.Barrier(8)
    homes: list[Path] = []
    failures: list[BaseException] = []

    def push() -> None:
        gate.wait()
        try:
            home = store.put(folder, digest)
            store.local_path(str(home), digest)
            homes.append(home)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(homes) == 8
    assert len(set(homes)) == 1
    assert [path.name for path in homes[0].parent.iterdir()] == [digest]
