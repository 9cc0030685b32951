"""Taking in the lines of a batch: bytes in, spooled jobs and refusals out. Nothing is stored in the database here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

import orjson

from registry import ids, jobs
from registry.adapters import Resolved
from registry.batches import lines
from registry.batches.refusals import LISTED, Refusal, Refusals
from registry.batches.spool import Spool, Spooled
from registry.batches.targets import Targets
from registry.errors import BadRequest, DuplicateCustomId, EmptyFile, LineTooLong, TooManyBadLines, TooManyTasks
from registry.json_text import parse_object
from registry.ndjson import Line, LineSplitter
from registry.shapes import JobCreate

MAX_TASKS: Final = 50_000
BAD_SHARE: Final = 0.1
"""More bad lines than this share are not skipped: the input as a whole looks wrong."""
_LONG_ID: Final = 64

FitCheck = Callable[[Resolved, JobCreate], None]


class Intake:
    """The lines of one batch. `check_fits` raises PromptTooLong for a job that certainly cannot run."""

    def __init__(
        self,
        spool: Spool,
        targets: Targets,
        endpoint: str,
        *,
        skip: bool,
        default_max_tokens: int,
        check_fits: FitCheck,
    ) -> None:
        self._spool = spool
        self._targets = targets
        self._endpoint = endpoint
        self._skip = skip
        self._default_max_tokens = default_max_tokens
        self._check_fits = check_fits
        self._splitter = LineSplitter(lines.MAX_LINE_BYTES)
        self._line_of: dict[str | bytes, int] = {}
        self.total = 0
        self.refusals = Refusals(kept=int(MAX_TASKS * BAD_SHARE))
        self.whole: BadRequest | None = None
        """What is wrong with the lines together; no line is read after it."""

    def feed(self, block: bytes) -> None:
        """Check the lines that this block completes."""
        for line in self._splitter.feed(block):
            self._take(line)

    def finish(self) -> None:
        """Check the last line and the lines together."""
        for line in self._splitter.finish():
            self._take(line)
        if self.total == 0:
            self.whole = EmptyFile("There is no line to run.")
        elif self.whole is None and self._skip and self.refusals.total > self.total * BAD_SHARE:
            self.whole = TooManyBadLines(
                f"{self.refusals.total} of {self.total} lines are bad, more than one in ten: nothing was skipped."
            )

    @property
    def may_run(self) -> bool:
        """Whether the batch may run: without its bad lines if they are to be skipped, else only if there are none."""
        return self.whole is None and (self._skip or self.refusals.total == 0)

    @property
    def error_total(self) -> int:
        """How many errors there are, listed or not."""
        return self.refusals.total + (self.whole is not None)

    def errors(self) -> list[dict[str, Any]]:
        """What a failed batch lists: first what is wrong with the lines together, then bad lines, a hundred in all."""
        listed = self.refusals.listed()
        if self.whole is not None:
            listed.insert(0, Refusal(None, self.whole.code, self.whole.message).entry())
        return listed[:LISTED]

    def _take(self, line: Line) -> None:
        if self.whole is not None:
            return
        self.total += 1
        if self.total > MAX_TASKS:
            self.whole = TooManyTasks(f"A batch has at most {MAX_TASKS} lines; split the input.")
            return
        custom_id: str | None = None
        try:
            fields = _fields(line)
            custom_id = self._new_id(fields, line.number)
            self._accept(line.number, custom_id, lines.job_of(fields, self._endpoint))
        except BadRequest as error:
            self.refusals.add(Refusal.of(error, line.number, custom_id))

    def _new_id(self, fields: dict[str, Any], number: int) -> str:
        custom_id = lines.custom_id_of(fields)
        # Fifty thousand ids of the greatest length would take 100 MB: of long ones only a digest is kept.
        key = custom_id if len(custom_id) <= _LONG_ID else hashlib.sha256(custom_id.encode()).digest()
        earlier = self._line_of.setdefault(key, number)
        if earlier != number:
            raise DuplicateCustomId(f"The custom_id is that of line {earlier} already.", param="custom_id")
        return custom_id

    def _accept(self, number: int, custom_id: str, request: JobCreate) -> None:
        target = self._targets.number(request.model, request.base_model)
        self._check_fits(self._targets.resolved[target], request)
        max_tokens = request.max_tokens or self._default_max_tokens
        body = orjson.dumps(jobs.input_body(request, max_tokens, may_lower=request.max_tokens is None))
        self._spool.add(Spooled(ids.new_id(), number, target, request.model, custom_id, body))


def _fields(line: Line) -> dict[str, Any]:
    if line.raw is None:
        raise LineTooLong(f"The line is longer than {lines.MAX_LINE_BYTES} bytes.")
    return parse_object(line.raw, "The line")
