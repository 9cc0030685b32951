"""Lines of a batch that are refused: listed in the batch, never the answer to a request."""

from __future__ import annotations

from registry.errors.requests import BadRequest


class LineRefused(BadRequest):
    """A line of a batch cannot run, or its lines together cannot; the batch lists it with the line's number."""

    code = "line_refused"


class InvalidJsonLine(LineRefused):
    """The line is not the JSON we accept."""

    code = "invalid_json_line"


class LineTooLong(LineRefused):
    """The line is longer than the limit; it was not read."""

    code = "line_too_long"


class MissingCustomId(LineRefused):
    """The line has no `custom_id`."""

    code = "missing_custom_id"


class DuplicateCustomId(LineRefused):
    """An earlier line has the same `custom_id`."""

    code = "duplicate_custom_id"


class UrlMismatch(LineRefused):
    """The line's `url` is not the batch's endpoint."""

    code = "url_mismatch"


class EmptyFile(LineRefused):
    """There is no line in it, or only blank ones."""

    code = "empty_file"


class TooManyTasks(LineRefused):
    """There are more lines than a batch takes."""

    code = "too_many_tasks"


class TooManyBadLines(LineRefused):
    """Bad lines were to be skipped, but there are so many that the whole input looks wrong."""

    code = "too_many_bad_lines"
