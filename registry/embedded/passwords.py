"""Generated passwords of a one-machine stack: one file each under `data_dir/secrets`, readable by their owner only."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def ensure(file: Path) -> str:
    """The password in `file`; the first caller generates it (32 hex digits: safe in URLs and configuration lines)."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text("ascii").strip()
    with os.fdopen(descriptor, "w", encoding="ascii") as handle:
        handle.write(secrets.token_hex(16) + "\n")
    return file.read_text("ascii").strip()
