"""The lines of a batch in a temporary file: checked for doubled ids, ready to be sent as often as it takes."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from types import TracebackType
from typing import IO, Final

from api.cli.documents import Item
from api.cli.exits import UnusableInput
from registry.batches.lines import MAX_LINE_BYTES
from registry.ndjson import LineSplitter

_NAMED: Final = 10


class Outbox:
    """A context manager; its file is gone afterwards. Memory: a digest and a place for each id."""

    def __init__(self) -> None:
        # It has no name under which anybody else could open it.
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.count = 0
        self.doubles: list[str] = []
        """The first few ids that came twice, in words."""
        self.double_total = 0
        self._places: dict[bytes, str] = {}

    def fill(self, lines: Iterable[Item], at_most: int) -> None:
        """Write all lines. Raises UnusableInput when there is none, or more than a batch takes."""
        for item in lines:
            self.count += item.begins
            if self.count > at_most:
                raise UnusableInput(
                    f"There are more than {at_most} documents, the most that a batch takes: split them."
                )
            if item.custom_id is not None:
                self._note(item.custom_id, item.place)
            self.file.write(item.raw)
        if self.count == 0:
            raise UnusableInput("There is no document in the input.")
        self.file.flush()

    @property
    def size_bytes(self) -> int:
        """How much there is to send."""
        return self.file.seek(0, 2)

    def ids_of(self, numbers: Collection[int]) -> dict[int, str]:
        """The custom ids of these lines, as far as they can be read."""
        found: dict[int, str] = {}
        splitter = LineSplitter(MAX_LINE_BYTES)
        self.file.seek(0)
        while len(found) < len(numbers) and (block := self.file.read(MAX_LINE_BYTES)):
            for line in splitter.feed(block):
                if line.number in numbers and line.raw is not None:
                    # The line may be listed for being no JSON at all.
                    with suppress(ValueError, KeyError, TypeError, RecursionError):
                        found[line.number] = str(json.loads(line.raw)["custom_id"])
        return found

    def _note(self, custom_id: str, place: str) -> None:
        digest = hashlib.blake2b(custom_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        earlier = self._places.setdefault(digest, place)
        if earlier != place:
            self.double_total += 1
            if len(self.doubles) < _NAMED:
                self.doubles.append(f"{custom_id!r} in {earlier} and {place}")

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.file.close()
