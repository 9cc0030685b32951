"""Uploaded files on disk. What the API does with them is in tests/api/test_files.py."""

from __future__ import annotations

import os
import time
from pathlib import Path

from registry.files import FileStore, Received
from registry.ids import new_id


def test_a_kept_file_lies_under_its_id_and_nothing_else_is_left(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    fresh, file_id = store.fresh(), new_id()
    fresh.write_bytes(b"abc")
    home = store.keep(Received(fresh, 3, "0" * 64), file_id)
    assert (home.name, home.read_bytes()) == (file_id.hex, b"abc")
    assert [path for path in store.root.rglob("*") if path.is_file()] == [home]


def test_what_a_crash_left_of_an_upload_is_swept_and_one_that_still_comes_is_not(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    stale, coming = store.fresh(), store.fresh()
    for path in (stale, coming):
        path.write_bytes(b"abc")
    kept = store.root / "ab" / new_id().hex
    kept.parent.mkdir()
    kept.write_bytes(b"abc")
    for path in (stale, kept):
        os.utime(path, (time.time() - 4000,) * 2)
    assert store.sweep() == 1
    assert (stale.exists(), coming.exists(), kept.exists()) == (False, True, True)


def test_sweeping_before_the_first_upload_is_fine(tmp_path: Path) -> None:
    assert FileStore(tmp_path / "new").sweep() == 0
