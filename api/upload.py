"""A form with an adapter's two files, received into a folder of its own that is gone when the request is over.

No archives, no file names of the sender's: a part is one of the two files or a short field, or the form is refused.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from api.body import check_media_type, limited
from api.deps import Caller, Shared
from registry.adapter_files import CONFIG_NAME, WEIGHTS_NAME
from registry.adapter_files.folder import MAX_CONFIG_BYTES
from registry.errors import BadRequest, InvalidField, InvalidText, RequestTooLarge
from registry.shapes import ShortText
from registry.validation import as_lorry_error

_FIELDS: Final = ("name", "base_model", "activate")
_FILES: Final = {"adapter_config": CONFIG_NAME, "adapter_model": WEIGHTS_NAME}
_MAX_FIELD_BYTES: Final = 4096
_FRAMING_BYTES: Final = 64 * 1024
_BLOCK_BYTES: Final = 1024 * 1024

FORM_SCHEMA: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["name", *_FILES],
                "properties": {
                    "name": {"type": "string", "description": "A new adapter's name, or one to add a version to."},
                    "base_model": {"type": "string", "description": "States the base, if the config names another."},
                    "activate": {"type": "boolean", "description": "Default: only a first version becomes active."},
                    "adapter_config": {"type": "string", "format": "binary", "description": CONFIG_NAME},
                    "adapter_model": {"type": "string", "format": "binary", "description": WEIGHTS_NAME},
                },
            }
        }
    },
}


class PushForm(BaseModel):
    """The short fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: ShortText
    base_model: ShortText | None = None
    activate: bool | None = Field(None)


@dataclass(frozen=True, slots=True)
class Upload:
    """A received form: its fields, and a folder with the two files."""

    form: PushForm
    folder: Path


async def receive_upload(request: Request, services: Shared, caller: Caller) -> AsyncIterator[Upload]:
    """The dependency: receives the form, and removes the folder after the request, however it ends.

    Raises UnsupportedMediaType, RequestTooLarge, RequestTimeout, BadRequest, InvalidField.
    """
    check_media_type(request, "multipart/form-data")
    max_bytes = services.settings.max_adapter_bytes
    async with _own_folder(services.settings.spool_dir) as folder:
        form = _Form(folder, request.headers["content-type"], max_bytes)
        try:
            block = bytearray()
            async for chunk in limited(request, max_bytes + MAX_CONFIG_BYTES + _FRAMING_BYTES):
                block += chunk
                if len(block) >= _BLOCK_BYTES:
                    await run_in_threadpool(form.feed, bytes(block))
                    block.clear()
            await run_in_threadpool(form.feed, bytes(block))
        finally:
            form.close()
        yield Upload(form.finish(), folder)


@asynccontextmanager
async def _own_folder(spool: Path) -> AsyncIterator[Path]:
    await run_in_threadpool(spool.mkdir, parents=True, exist_ok=True)
    folder = Path(await run_in_threadpool(tempfile.mkdtemp, prefix="push-", dir=spool))
    try:
        yield folder
    finally:
        await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)


class _Form:
    """Takes the form's bytes and writes the files while they come. Not for two threads at once."""

    def __init__(self, folder: Path, content_type: str, max_bytes: int) -> None:
        self._folder = folder
        self._limits = {CONFIG_NAME: MAX_CONFIG_BYTES, WEIGHTS_NAME: max_bytes}
        self._fields: dict[str, bytearray] = {}
        self._header = self._value = b""
        self._disposition = b""
        self._part = ""
        self._size = 0
        self._file: BinaryIO | None = None
        self._ended = False
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
                "on_part_end": self.close,
                "on_end": self._on_end,
            },
        )

    def feed(self, block: bytes) -> None:
        """Take the next bytes."""
        try:
            self._parser.write(block)
        except MultipartParseError:
            raise BadRequest("The body is not a well-formed multipart form.") from None

    def finish(self) -> PushForm:
        """The fields of a form that is complete."""
        if not self._ended:
            raise BadRequest("The form ends before its closing boundary.")
        for part, file in _FILES.items():
            if not (self._folder / file).exists():
                raise InvalidField(f"The form lacks the file {file}.", param=part)
        try:
            fields = {name: value.decode("utf-8") for name, value in self._fields.items()}
            return PushForm.model_validate(fields)
        except UnicodeDecodeError:
            raise InvalidText("A field of the form is not valid UTF-8.") from None
        except ValidationError as error:
            raise as_lorry_error(error.errors(include_input=False, include_url=False, include_context=False)) from None

    def close(self) -> None:
        """Close the file that is being written, if any."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _on_part_begin(self) -> None:
        self._header = self._value = self._disposition = b""
        self._part, self._size = "", 0

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
        part, filename = options.get(b"name", b""), options.get(b"filename", b"")
        by_name = _FILES.get(part.decode("latin-1"))
        by_filename = filename.decode("latin-1") if filename.decode("latin-1") in self._limits else None
        file = by_name or by_filename
        self._part = file or part.decode("latin-1")
        if file is not None:
            self._open(file)
        elif filename or self._part not in _FIELDS:
            _refuse_part()
        elif self._part in self._fields:
            raise InvalidField("The form has this field twice.", param=self._part)
        else:
            self._fields[self._part] = bytearray()

    def _open(self, file: str) -> None:
        try:
            self._file = (self._folder / file).open("xb")
        except FileExistsError:
            raise BadRequest(f"The form has the file {file} twice.") from None

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._size += end - start
        if self._size > self._limits.get(self._part, _MAX_FIELD_BYTES):
            raise RequestTooLarge("A part of the form is larger than its limit.")
        if self._file is not None:
            self._file.write(memoryview(data)[start:end])
        else:
            self._fields[self._part] += data[start:end]

    def _on_end(self) -> None:
        self._ended = True


def _refuse_part() -> NoReturn:
    raise BadRequest(
        f"The form has a part that is not taken: send the files {CONFIG_NAME} and {WEIGHTS_NAME} "
        f"and the fields {', '.join(_FIELDS)}; no archives."
    )
