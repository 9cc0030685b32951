"""No room on a disk is said by its code, and nothing half-written stays."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from registry import adapter_files
from registry.errors import StorageFull
from registry.store import Store, mapped_full_disk

PUT = """
import resource, signal, sys
from pathlib import Path
from registry.errors import StorageFull
from registry.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write beyond the limit fails as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
try:
    Store(Path(sys.argv[1])).put(Path(sys.argv[2]), sys.argv[3])
except StorageFull as error:
    print(error.code)
"""


def test_an_adapter_that_does_not_fit_leaves_nothing_in_the_store(
    make_adapter_dir: Callable[..., Path], tiny_base_dir: Path, tmp_path: Path
) -> None:
    folder = make_adapter_dir(tmp_path / "adapter", tiny_base_dir)
    digest = adapter_files.digest(folder)
    root = tmp_path / "store"
    command = [sys.executable, "-c", PUT, str(root), str(folder), digest]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.stdout.strip() == "storage_full", done.stderr
    assert [file for file in root.rglob("*") if file.is_file()] == []
    assert Store(root).put(folder, digest).is_dir(), "with room again it is taken"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2048


def test_other_faults_of_a_disk_stay_what_they_are() -> None:
    with pytest.raises(PermissionError), mapped_full_disk():
        raise PermissionError(13, "no")
    with pytest.raises(StorageFull), mapped_full_disk():
        raise OSError(28, "No space left on device")
