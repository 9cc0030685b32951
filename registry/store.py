"""Adapter files, kept by content: a folder per digest, written once, never changed."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from registry import adapter_files
from registry.errors import AdapterLoadFailed, AdapterRejected


class Store:
    """Files under one folder that API and workers share."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def put(self, folder: Path, digest: str) -> Path:
        """Keep the two files of a checked adapter folder. The result is complete or absent, never half written.

        A damaged copy of the same files is replaced.
        """
        home = self._home(digest)
        if _digest_of(home) == digest:
            return home
        home.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".new-", dir=home.parent))
        fresh = staging / "fresh"
        try:
            fresh.mkdir()
            adapter_files.take(folder, fresh)
            if adapter_files.digest(fresh) != digest:
                raise AdapterLoadFailed("The adapter's files changed while they were being stored; push them again.")
            fresh.chmod(0o755)
            if home.is_dir() and _digest_of(home) != digest:
                home.rename(staging / "damaged")
            fresh.rename(home)
        except OSError:
            if _digest_of(home) != digest:  # else another push of the same files was quicker
                raise
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return home

    def local_path(self, path: str, digest: str) -> tuple[Path, float]:
        """The adapter's folder on this machine, verified, and what that cost in ms (`fetch_ms`).

        Raises AdapterLoadFailed when the files are gone or are not what was registered.
        """
        begun = time.perf_counter()
        folder = Path(path)
        found = _digest_of(folder)
        if found is None:
            raise AdapterLoadFailed("The adapter's files are not in the store; push them again.")
        if found != digest:
            raise AdapterLoadFailed("The adapter's files in the store are not those registered; push them again.")
        return folder, (time.perf_counter() - begun) * 1000

    def _home(self, digest: str) -> Path:
        return self.root / "adapters" / digest[:2] / digest


def _digest_of(folder: Path) -> str | None:
    """The folder's digest; None when a file is missing or unreadable."""
    try:
        return adapter_files.digest(folder)
    except (OSError, AdapterRejected):
        return None
