"""The environment with version 2 of OpenAI's package: made once from its hash-locked list, in pytest's cache."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

LOCK = Path(__file__).parents[2] / "requirements" / "openai2.txt"


def python_of(cache: pytest.Cache) -> Path:
    """The interpreter of the environment, which is made if it is not there whole. Takes about ten seconds then."""
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache.mkdir(f"openai2-{digest}")
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        print(f"Installing version 2 of the openai package from {LOCK.name} into {folder}.")  # noqa: T201
        _run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder))
        _run(sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check", "install",
             "--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(LOCK))  # fmt: skip
        whole.touch()
    return python


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{argv} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
