"""Checked lines on disk, until all of a batch are known to be good: memory does not grow with the batch.

The file has no name, so that nothing is left of it after a crash.
"""

from __future__ import annotations

import struct
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<16sIIIII")
_BUFFER_BYTES: Final = 1024 * 1024


class Spooled(NamedTuple):
    """A line that will be a job. `target` is its place in `Targets.resolved`, `body` the JSON that the worker reads."""

    job_id: uuid.UUID
    line: int
    target: int
    model: str
    custom_id: str
    body: bytes


class Spool:
    """Written once, then read as often as needed; to be closed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=_BUFFER_BYTES)  # noqa: SIM115
        self.lines = 0

    def add(self, spooled: Spooled) -> None:
        """Write one line. Raises OSError when the disk is full."""
        model, custom_id = spooled.model.encode(), spooled.custom_id.encode()
        ends = (len(model), len(custom_id))
        head = _HEAD.pack(spooled.job_id.bytes, spooled.line, spooled.target, *ends, len(spooled.body))
        self._file.write(b"".join((head, model, custom_id, spooled.body)))
        self.lines += 1

    def __iter__(self) -> Iterator[Spooled]:
        """The lines, in the order in which they were added."""
        self._file.seek(0)
        read, unpack, size = self._file.read, _HEAD.unpack, _HEAD.size
        for _ in range(self.lines):
            job_id, line, target, of_model, of_id, of_body = unpack(read(size))
            texts = read(of_model + of_id)
            model, custom_id = texts[:of_model].decode(), texts[of_model:].decode()
            yield Spooled(uuid.UUID(bytes=job_id), line, target, model, custom_id, read(of_body))

    def close(self) -> None:
        """Give the disk space back."""
        self._file.close()
