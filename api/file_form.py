"""The form of an uploaded file, as OpenAI's clients send it: its bytes go to the store's disk while they arrive."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from api import multipart
from api.deps import Caller, Shared
from registry.errors import BadRequest, InvalidField, InvalidText, RequestTooLarge
from registry.files import PURPOSE, Received
from registry.store import mapped_full_disk
from registry.validation import checked

_FIELDS: Final = {"purpose": "purpose", "expires_after[anchor]": "anchor", "expires_after[seconds]": "seconds"}
_MAX_FIELD_BYTES: Final = 1024
_MAX_NAME_CHARS: Final = 255
_UNNAMED: Final = "upload"

FORM_SCHEMA: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["purpose", "file"],
                "properties": {
                    "purpose": {"type": "string", "enum": [PURPOSE]},
                    "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
                    "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
                    "file": {"type": "string", "format": "binary", "description": "JSONL, one request a line."},
                },
            }
        }
    },
}


class FileFields(BaseModel):
    """The short fields, read from text."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    purpose: str
    anchor: Literal["created_at"] | None = None
    seconds: int | None = Field(None, ge=3600, le=2_592_000)


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file that has arrived."""

    received: Received
    filename: str
    expires_after_s: int | None


async def receive_file(request: Request, services: Shared, caller: Caller) -> AsyncIterator[FileUpload]:
    """The dependency: receives the form, and removes what was not kept after the request, however it ends.

    Raises UnsupportedMediaType, RequestTooLarge, RequestTimeout, BadRequest, InvalidField, StorageFull.
    """
    max_bytes = services.settings.max_file_bytes
    path = await run_in_threadpool(services.files.fresh)
    form = _FileForm(path, max_bytes)
    try:
        await multipart.receive(request, form, max_bytes)
        yield form.upload()
    finally:
        await run_in_threadpool(form.discard)


class _FileForm:
    """Takes the form's parts in any order."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._fields: dict[str, bytearray] = {}
        self._field = ""
        self._file: BinaryIO | None = None
        self._filename: str | None = None
        self._digest = hashlib.sha256()
        self._bytes = 0

    def begin(self, name: str, filename: str | None) -> None:
        """A part begins."""
        self._field = name
        if name == "file":
            self._open(filename)
        elif name not in _FIELDS or filename is not None:
            raise BadRequest(f"The form has a part that is not taken: send file, {', '.join(_FIELDS)}.")
        elif name in self._fields:
            raise InvalidField("The form has this field twice.", param=name)
        else:
            self._fields[name] = bytearray()

    def data(self, data: memoryview) -> None:
        """The part's next bytes."""
        if self._file is None:
            self._fields[self._field] += data
            if len(self._fields[self._field]) > _MAX_FIELD_BYTES:
                raise RequestTooLarge("A field of the form is larger than its limit.", param=self._field)
            return
        self._bytes += len(data)
        if self._bytes > self._max_bytes:
            raise RequestTooLarge(f"The file is larger than {self._max_bytes} bytes; split it.", param="file")
        self._digest.update(data)
        with mapped_full_disk():
            self._file.write(data)

    def end(self) -> None:
        """The part is complete."""
        if self._file is not None:
            with mapped_full_disk():
                self._file.close()
            self._file = None

    def upload(self) -> FileUpload:
        """What the form, now complete, says."""
        if self._filename is None:
            raise InvalidField("The form lacks the file.", param="file")
        try:
            fields = {_FIELDS[name]: value.decode("utf-8") for name, value in self._fields.items()}
        except UnicodeDecodeError:
            raise InvalidText("A field of the form is not valid UTF-8.") from None
        form = checked(FileFields, fields)
        if form.purpose != PURPOSE:
            raise InvalidField(f"purpose: files are kept as inputs of batches only; send {PURPOSE}.", param="purpose")
        received = Received(self._path, self._bytes, self._digest.hexdigest())
        return FileUpload(received, self._filename, form.seconds)

    def discard(self) -> None:
        """Remove the bytes unless they have been moved to their place."""
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
        self._path.unlink(missing_ok=True)

    def _open(self, filename: str | None) -> None:
        if self._filename is not None:
            raise BadRequest("The form has two files; send them one at a time.", param="file")
        self._filename = clean_name(filename or "")
        with mapped_full_disk():
            self._file = self._path.open("xb")


def clean_name(filename: str) -> str:
    """The last part of the sender's name without what cannot be shown. Raises InvalidField for an endless one."""
    if len(filename) > _MAX_NAME_CHARS:
        raise InvalidField(f"The file's name is longer than {_MAX_NAME_CHARS} characters.", param="file")
    name = PurePosixPath(filename.replace("\\", "/")).name
    return "".join(char for char in name if char.isprintable()).strip() or _UNNAMED
