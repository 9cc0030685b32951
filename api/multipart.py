"""Multipart forms, read part by part while they arrive. What a part means is for the form's own class to say."""

from __future__ import annotations

from typing import Final, Protocol

from fastapi import Request
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from api.body import check_media_type, in_blocks
from api.idempotency import FormDigest, once_of
from registry.errors import BadRequest

FRAMING_BYTES: Final = 64 * 1024
"""Allowance for boundaries and headers beside the parts' own bytes."""


class Parts(Protocol):
    """What takes a form's parts, one after the other."""

    def begin(self, name: str, filename: str | None) -> None:
        """A part begins; `filename` None for a plain field."""

    def data(self, data: memoryview) -> None:
        """The part's next bytes."""

    def end(self) -> None:
        """The part is complete."""


async def receive(request: Request, parts: Parts, max_bytes: int) -> None:
    """Feed the request's form to `parts`, on a thread. Returns once the closing boundary has come.

    Raises UnsupportedMediaType, RequestTooLarge, RequestTimeout, BadRequest, what `parts` raises, and Replayed.
    """
    check_media_type(request, "multipart/form-data")
    reader = _Reader(request.headers["content-type"], parts)
    async for block in in_blocks(request, max_bytes + FRAMING_BYTES):
        await run_in_threadpool(reader.feed, block)
    if not reader.ended:
        raise BadRequest("The form ends before its closing boundary.")
    await run_in_threadpool(once_of(request).compare, reader.digest.digest())


class _Reader:
    """Turns bytes into calls of `parts`. Not for two threads at once."""

    def __init__(self, content_type: str, parts: Parts) -> None:
        self._parts = parts
        self._header = self._value = self._disposition = b""
        self.ended = False
        self.digest = FormDigest()
        boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
        if not 1 <= len(boundary) <= 70:
            raise BadRequest("The form's content-type has no usable boundary.")
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._on_part_begin,
                "on_header_field": self._on_header_field,
                "on_header_value": self._on_header_value,
                "on_header_end": self._on_header_end,
                "on_headers_finished": self._on_headers_finished,
                "on_part_data": self._on_part_data,
                "on_part_end": self._on_part_end,
                "on_end": self._on_end,
            },
        )

    def feed(self, block: bytes) -> None:
        """Take the next bytes."""
        try:
            self._parser.write(block)
        except MultipartParseError:
            raise BadRequest("The body is not a well-formed multipart form.") from None

    def _on_part_begin(self) -> None:
        self._header = self._value = self._disposition = b""

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header = self._value = b""

    def _on_headers_finished(self) -> None:
        options = parse_options_header(self._disposition)[1]
        filename = options.get(b"filename")
        name = options.get(b"name", b"").decode("utf-8", "replace")
        sent_as = None if filename is None else filename.decode("utf-8", "replace")
        self.digest.begin(name, sent_as)
        self._parts.begin(name, sent_as)

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        piece = memoryview(data)[start:end]
        self.digest.data(piece)
        self._parts.data(piece)

    def _on_part_end(self) -> None:
        self.digest.end()
        self._parts.end()

    def _on_end(self) -> None:
        self.ended = True
