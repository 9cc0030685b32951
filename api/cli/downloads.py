"""Results on their way into a file. Until they are whole they are in `FILE.part`; beside it, `FILE.part.json` says of
which batch they are, how many bytes are good and which cursor comes next. So a download goes on where it was cut, be it
by the network, by Ctrl-C or by the power, and a file under its own name is always whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from api.cli.client import Api
from api.cli.exits import Refused, UnusableInput
from api.cli.result_forms import form_of

_NOTE_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a download has come. A swap that several jobs waited for is shared among them."""

    cursor: str | None = None
    lines: int = 0
    swaps: float = 0.0


class PartFile:
    """The unfinished file and the note beside it. Only one process at a time may have it."""

    def __init__(self, target: Path, batch_id: str) -> None:
        self._target = target
        self._path = _beside(target, ".part")
        self._note_path = _beside(target, ".part.json")
        self._batch_id = batch_id
        self._file = self._path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kept = _kept(target, batch_id)
        except BlockingIOError:
            self._file.close()
            raise UnusableInput(f"{self._path} is being written by another `lorry`.") from None
        size = int(kept.pop("bytes", 0))
        self.reached = Reached(**kept)
        # Size and place change together, in one assignment: Ctrl-C may come between any two.
        self._good = (size, self.reached)
        self._file.truncate(size)
        self._noted_at_s = time.monotonic()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept of an earlier download."""
        return self._good[0] == 0

    def write(self, data: bytes, reached: Reached) -> None:
        """Append, and from time to time note how far it is."""
        self._file.write(data)
        self._good = (self._good[0] + len(data), reached)
        if time.monotonic() - self._noted_at_s >= _NOTE_EVERY_S:
            self.note()

    def note(self) -> None:
        """Make sure of what is written. The note never claims more than the disk has."""
        size, reached = self._good
        self._file.flush()
        os.fsync(self._file.fileno())
        draft = _beside(self._target, ".part.json~")
        draft.write_text(json.dumps({"batch": self._batch_id, "bytes": size} | asdict(reached)), "utf-8")
        draft.replace(self._note_path)
        self._noted_at_s = time.monotonic()

    def finish(self) -> None:
        """The file is whole: it gets its name."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._path.replace(self._target)
        self._note_path.unlink(missing_ok=True)
        self._file.close()

    def close(self) -> None:
        """Let go of it; what is there stays, to go on with."""
        if not self._file.closed:
            self.note()
            self._file.close()


class Stdout:
    """Results straight to stdout, which remembers nothing."""

    reached = Reached()
    is_empty = True

    def write(self, data: bytes, reached: Reached) -> None:
        """Pass it on."""
        sys.stdout.buffer.write(data)

    def note(self) -> None:
        """What is there should be seen."""
        sys.stdout.buffer.flush()

    def finish(self) -> None:
        """All was written."""
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """It is not ours to close."""


class Download:
    """The results of one batch, in input order. `fetch` as often as wanted, `finish` once it is whole."""

    def __init__(self, batch_id: str, target: str) -> None:
        self._batch_id = batch_id
        self._form = form_of(target)
        self._into = Stdout() if target == "-" else PartFile(Path(target), batch_id)
        self.reached = self._into.reached
        if self._into.is_empty:
            self._into.write(self._form.head, self.reached)

    def fetch(self, api: Api) -> str:
        """Read what has ended since; the batch's status before that. Once it is terminal, all has been read."""
        status = api.lines(f"batches/{self._batch_id}/results", self._take, self._place)
        self._into.note()
        return status

    def finish(self) -> None:
        """Everything is there."""
        self._into.finish()

    def close(self) -> None:
        """Keep what is there, to go on with later."""
        self._into.close()

    def _place(self) -> dict[str, str]:
        return {"order": "input"} | ({"after": self.reached.cursor} if self.reached.cursor else {})

    def _take(self, raw: bytes) -> None:
        try:
            fields = orjson.loads(raw)
            cursor = str(fields["cursor"])
        except (ValueError, KeyError, TypeError):
            raise Refused("A result is not the JSON it should be: check LORRY_BASE_URL.", "invalid_json") from None
        swap = (fields.get("timing") or {}).get("swap") or {"state": "hot"}
        cost = 0.0 if swap["state"] == "hot" else 1 / max(1, swap["shared_by"])
        reached = Reached(cursor, self.reached.lines + 1, self.reached.swaps + cost)
        self._into.write(self._form.row(raw, fields), reached)
        self.reached = reached


def check_target(target: str, batch_id: str | None) -> None:
    """Raise UnusableInput if results of this batch (None: of a new one) cannot go there; before anything is sent."""
    form_of(target)
    if target == "-":
        return
    path = Path(target)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UnusableInput(f"--out {target}: that is a folder, or its folder is not there.")
    _kept(path, batch_id)


def _kept(target: Path, batch_id: str | None) -> dict[str, Any]:
    """What the note says, if there is one and it is of this batch. Raises UnusableInput."""
    note, part = _beside(target, ".part.json"), _beside(target, ".part")
    try:
        kept: dict[str, Any] = json.loads(note.read_text("utf-8"))
        owner = str(kept.pop("batch"))
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UnusableInput(f"{note} is not a note of `lorry`: remove it.") from None
    if owner != batch_id:
        raise UnusableInput(f"{part} has results of {owner}: go on with --batch {owner}, or remove {note} first.")
    return kept


def _beside(target: Path, suffix: str) -> Path:
    return target.with_name(target.name + suffix)
