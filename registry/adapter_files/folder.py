"""The folder as PEFT saves it: which two files count, how they are opened, copied and identified.

Links are never followed and only regular files are opened, so a folder cannot point at files outside itself. The store
calls `take` and then checks the *copy*: what was checked is what is kept.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from registry.adapter_files.reasons import Findings, quoted, reject

CONFIG_NAME: Final = "adapter_config.json"
WEIGHTS_NAME: Final = "adapter_model.safetensors"
MAX_CONFIG_BYTES: Final = 256 * 1024
_PICKLES: Final = frozenset(f"adapter_model.{end}" for end in ("bin", "pt", "pth", "pkl", "pickle", "ckpt"))
_CHUNK_BYTES: Final = 1024 * 1024


def open_regular(path: Path) -> BinaryIO:
    """Open for reading, refusing links, devices and pipes. Raises AdapterRejected (`not_a_file`)."""
    try:
        # O_NONBLOCK keeps a pipe from hanging the open; it changes nothing for regular files.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise reject("not_a_file", f"{path.name} cannot be opened as a file (links are not followed).") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise reject("not_a_file", f"{path.name} is not a regular file.")
    return os.fdopen(descriptor, "rb")


def survey(folder: Path, findings: Findings, max_bytes: int) -> tuple[str, ...]:
    """Report what is missing, oversized or pickled; return the names left behind, sorted."""
    if not folder.is_dir():
        findings.add("folder_missing", f"There is no folder {quoted(str(folder))}.")
        return ()
    names = sorted(entry.name for entry in os.scandir(folder))
    pickles = [name for name in names if name.lower() in _PICKLES]
    for name in pickles:
        findings.add("pickle_file", f"{name} is a pickle file, which is never read.")
    if CONFIG_NAME not in names:
        findings.add("config_missing", f"The folder has no {CONFIG_NAME}.")
    if WEIGHTS_NAME not in names:
        if not pickles:
            findings.add("weights_missing", f"The folder has no {WEIGHTS_NAME}.")
    elif (size := (folder / WEIGHTS_NAME).lstat().st_size) > max_bytes:
        findings.add("too_large", f"{WEIGHTS_NAME} has {size} bytes; the limit is {max_bytes}.")
    return tuple(name for name in names if name not in (CONFIG_NAME, WEIGHTS_NAME))


def read_config_bytes(path: Path) -> bytes:
    """The config file, whole. Raises AdapterRejected (`not_a_file`, `config_too_large`)."""
    with open_regular(path) as file:
        raw = file.read(MAX_CONFIG_BYTES + 1)
    if len(raw) > MAX_CONFIG_BYTES:
        raise reject("config_too_large", f"{CONFIG_NAME} is larger than {MAX_CONFIG_BYTES} bytes.")
    return raw


def digest(folder: Path) -> str:
    """SHA-256 in hex over, for config then weights: file name, NUL, size as 8 little-endian bytes, content."""
    total = hashlib.sha256()
    for name in (CONFIG_NAME, WEIGHTS_NAME):
        with open_regular(folder / name) as file:
            size = os.fstat(file.fileno()).st_size
            total.update(name.encode() + b"\0" + size.to_bytes(8, "little"))
            for chunk in _chunks(file):
                total.update(chunk)
    return total.hexdigest()


def take(folder: Path, destination: Path) -> tuple[str, ...]:
    """Copy the two files into the existing, empty `destination` (mode 0444, synced); return the names left behind.

    Raises AdapterRejected if either is missing or not a regular file, and OSError if the destination cannot be written.
    """
    findings = Findings()
    left_behind = survey(folder, findings, max_bytes=2**63)
    if findings.kept:
        first = findings.kept[0]
        raise reject(first.reason, first.message)
    for name in (CONFIG_NAME, WEIGHTS_NAME):
        with open_regular(folder / name) as source:
            _copy(source, destination / name)
    return left_behind


def _copy(source: BinaryIO, target: Path) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    with os.fdopen(descriptor, "wb") as copy:
        os.fchmod(descriptor, 0o444)
        for chunk in _chunks(source):
            copy.write(chunk)
        copy.flush()
        os.fsync(descriptor)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
