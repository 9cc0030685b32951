"""Adapter files, kept by content: a folder per digest, written once, never changed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from registry import adapter_files
from registry.errors import AdapterFilesLost, AdapterLoadFailed, AdapterRejected, StorageFull


class Store:
    """Files under one folder that API and workers share."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def put(self, folder: Path, digest: str) -> Path:
        """Keep the two files of a checked adapter folder. The result is complete or absent, never half written.

        A damaged copy of the same files is replaced. Raises StorageFull.
        """
        home = self._home(digest)
        if _digest_of(home) == digest:
            return home
        with mapped_full_disk():
            self._put(folder, digest, home)
        return home

    def _put(self, folder: Path, digest: str, home: Path) -> None:
        home.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
        fresh = staging / "fresh"
        try:
            fresh.mkdir()
            adapter_files.take(folder, fresh)
            if adapter_files.digest(fresh) != digest:
                raise AdapterLoadFailed("The adapter's files changed while they were being stored; push them again.")
            fresh.chmod(0o755)
            _sync(fresh)
            if home.is_dir() and _digest_of(home) != digest:
                home.rename(staging / "damaged")
            fresh.rename(home)
            _sync(home.parent)
        except OSError:
            if _digest_of(home) != digest:  # else another push of the same files was quicker
                raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def local_path(self, path: str, digest: str) -> tuple[Path, float]:
        """The adapter's folder on this machine, verified, and what that cost in ms (`fetch_ms`).

        Raises AdapterFilesLost when the files are gone, AdapterLoadFailed when they are not what was registered.
        """
        begun = time.perf_counter()
        folder = Path(path)
        found = _digest_of(folder)
        if found is None:
            raise AdapterFilesLost("The adapter's files are not in the store; push them again.")
        if found != digest:
            raise AdapterLoadFailed("The adapter's files in the store are not those registered; push them again.")
        return folder, (time.perf_counter() - begun) * 1000

    def fault(self, path: str, digest: str) -> str | None:
        """What is wrong with an adapter's files: `missing`, `changed`, or None. Reads all of them."""
        found = _digest_of(Path(path))
        return None if found == digest else "missing" if found is None else "changed"

    def _home(self, digest: str) -> Path:
        return self.root / "adapters" / digest[:2] / digest


@contextmanager
def mapped_full_disk() -> Iterator[None]:
    """Turn "no room" into StorageFull; other errors of the disk stay what they are."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageFull("There is no room for the upload; nothing was kept. Tell the operator.") from None
        raise


def _sync(folder: Path) -> None:
    """What is acknowledged has to survive a power cut."""
    for place in (*(file for file in folder.iterdir() if file.is_file()), folder):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _digest_of(folder: Path) -> str | None:
    """The folder's digest; None when a file is missing or unreadable."""
    try:
        return adapter_files.digest(folder)
    except (OSError, AdapterRejected):
        return None
