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
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from api import multipart
from api.deps import Caller, Shared
from registry.adapter_files import CONFIG_NAME, WEIGHTS_NAME
from registry.adapter_files.folder import MAX_CONFIG_BYTES
from registry.errors import BadRequest, InvalidField, InvalidText, RequestTooLarge
from registry.shapes import ShortText
from registry.store import mapped_full_disk
from registry.validation import checked

_FIELDS: Final = ("name", "base_model", "activate")
_FILES: Final = {"adapter_config": CONFIG_NAME, "adapter_model": WEIGHTS_NAME}
_MAX_FIELD_BYTES: Final = 4096

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

    Raises UnsupportedMediaType, RequestTooLarge, RequestTimeout, BadRequest, InvalidField, StorageFull,
    and Replayed.
    """
    max_bytes = services.settings.max_adapter_bytes
    async with _own_folder(services.settings.spool_dir) as folder:
        form = _Form(folder, max_bytes)
        try:
            with mapped_full_disk():
                await multipart.receive(request, form, max_bytes + MAX_CONFIG_BYTES)
        finally:
            form.end()
        yield Upload(form.finish(), folder)


@asynccontextmanager
async def _own_folder(spool: Path) -> AsyncIterator[Path]:
    with mapped_full_disk():
        await run_in_threadpool(spool.mkdir, parents=True, exist_ok=True)
        folder = Path(await run_in_threadpool(tempfile.mkdtemp, prefix="push-", dir=spool))
    try:
        yield folder
    finally:
        await run_in_threadpool(shutil.rmtree, folder, ignore_errors=True)


class _Form:
    """Takes the form's parts and writes the files while they come."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._limits = {CONFIG_NAME: MAX_CONFIG_BYTES, WEIGHTS_NAME: max_bytes}
        self._fields: dict[str, bytearray] = {}
        self._part = ""
        self._size = 0
        self._file: BinaryIO | None = None

    def begin(self, name: str, filename: str | None) -> None:
        """A part begins: one of the two files, by its own name or by the file's, or a field."""
        file = _FILES.get(name) or (filename if filename in self._limits else None)
        self._part, self._size = file or name, 0
        if file is not None:
            self._open(file)
        elif filename or name not in _FIELDS:
            _refuse_part()
        elif name in self._fields:
            raise InvalidField("The form has this field twice.", param=name)
        else:
            self._fields[name] = bytearray()

    def data(self, data: memoryview) -> None:
        """The part's next bytes."""
        self._size += len(data)
        if self._size > self._limits.get(self._part, _MAX_FIELD_BYTES):
            raise RequestTooLarge("A part of the form is larger than its limit.")
        if self._file is not None:
            self._file.write(data)
        else:
            self._fields[self._part] += data

    def end(self) -> None:
        """Close the file that is being written, if any."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def finish(self) -> PushForm:
        """The fields of a form that is complete."""
        for part, file in _FILES.items():
            if not (self._folder / file).exists():
                raise InvalidField(f"The form lacks the file {file}.", param=part)
        try:
            return checked(PushForm, {name: value.decode("utf-8") for name, value in self._fields.items()})
        except UnicodeDecodeError:
            raise InvalidText("A field of the form is not valid UTF-8.") from None

    def _open(self, file: str) -> None:
        try:
            self._file = (self._folder / file).open("xb")
        except FileExistsError:
            raise BadRequest(f"The form has the file {file} twice.") from None


def _refuse_part() -> NoReturn:
    raise BadRequest(
        f"The form has a part that is not taken: send the files {CONFIG_NAME} and {WEIGHTS_NAME} "
        f"and the fields {', '.join(_FIELDS)}; no archives."
    )
