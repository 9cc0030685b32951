"""/v1/files in OpenAI's shapes: upload, list, read, delete, download."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from api.deps import Caller, Session, Shared
from api.file_form import FORM_SCHEMA, FileUpload, receive_file
from api.idempotency import Idempotent
from api.lists import Page
from registry import files, ids, quotas
from registry.batches import outputs, views
from registry.errors import InvalidField, NotFound
from registry.models import File
from registry.store import mapped_full_disk

router = APIRouter(tags=["files"])

_BYTES: Final = "application/octet-stream"
_ANY_BYTES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {_BYTES: {"schema": {"type": "string", "format": "binary"}}}}
}
_CHUNK_BYTES: Final = 256 * 1024


class FileView(BaseModel):
    """A file. Times are in unix seconds; `status` is for OpenAI's clients and always the same."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"
    status_details: None = None


class FileDeleted(BaseModel):
    """What is left of a deleted file."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


@router.post("/files", openapi_extra={"requestBody": FORM_SCHEMA})
def upload_file(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    upload: Annotated[FileUpload, Depends(receive_file, scope="function")],
) -> FileView:
    """Keep an input for `POST /v1/batches`. It is checked when a batch is made of it."""
    file_id = ids.new_id()
    with mapped_full_disk():
        path = services.files.keep(upload.received, file_id)
    try:
        with once.transaction() as session:
            row = files.add(
                session,
                caller.tenant_id,
                upload.received,
                file_id=file_id,
                path=path,
                filename=upload.filename,
                expires_after_s=upload.expires_after_s,
            )
            quotas.reserve_bytes(session, caller.tenant_id, services.settings)
            once.keep(session, file_view(row))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return file_view(row)


@router.get("/files")
def list_files(
    session: Session,
    caller: Caller,
    after: Annotated[str | None, Query(description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Annotated[Literal["asc", "desc"], Query()] = "desc",
    purpose: Annotated[str | None, Query(max_length=64, pattern="^[a-z_-]+$")] = None,
) -> Page[FileView]:
    """Your files: inputs, and the outputs and errors of batches."""
    try:
        cursor = ids.from_wire("file", after) if after is not None else None
    except NotFound:
        raise InvalidField("`after` is not the id of one of your files.", param="after") from None
    rows = files.page(
        session, caller.tenant_id, after=cursor, limit=limit, newest_first=order == "desc", purpose=purpose
    )
    views = [file_view(row) for row in rows[:limit]]
    return Page.of(views, [view.id for view in views], has_more=len(rows) > limit)


@router.get("/files/{file_id}")
def get_file(session: Session, caller: Caller, file_id: str) -> FileView:
    """One file's facts."""
    return file_view(files.get(session, caller.tenant_id, ids.from_wire("file", file_id)))


@router.delete("/files/{file_id}")
def delete_file(services: Shared, caller: Caller, file_id: str) -> FileDeleted:
    """Remove a file. Batches made of it run on: they have their own copy of its lines."""
    with services.transaction(caller) as session:
        path = files.remove(session, caller.tenant_id, ids.from_wire("file", file_id))
    if path is not None:
        Path(path).unlink(missing_ok=True)
    return FileDeleted(id=file_id)


@router.get("/files/{file_id}/content", response_class=StreamingResponse, responses=_ANY_BYTES)
def get_file_content(services: Shared, caller: Caller, file_id: str) -> StreamingResponse:
    """The bytes: of an input as uploaded, of an output as JSONL made from the batch's rows."""
    with services.transaction(caller) as session:
        row = files.get(session, caller.tenant_id, ids.from_wire("file", file_id))
        if row.batch_id is not None:
            stream = outputs.stream_output if row.content == "output" else outputs.stream_errors
            endpoint = views.get(session, caller.tenant_id, row.batch_id).endpoint
            lines = stream(services.database, caller.tenant_id, row.batch_id, endpoint)
            return StreamingResponse(lines, media_type=_BYTES)
    chunks = _uploaded(Path(row.path or ""))
    return StreamingResponse(chunks, media_type=_BYTES, headers={"content-length": str(row.bytes)})


def file_view(row: File) -> FileView:
    """The view of a row."""
    return FileView(
        id=ids.to_wire("file", row.id),
        bytes=row.bytes,
        created_at=int(row.created_at.timestamp()),
        expires_at=int(row.expires_at.timestamp()) if row.expires_at else None,
        filename=row.filename,
        purpose=row.purpose,
    )


def _uploaded(path: Path) -> Iterator[bytes]:
    """The file in pieces. It is opened before the answer begins: missing bytes must not leave as a 200."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFound("The file has just been deleted.") from None
    return _pieces(file)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_CHUNK_BYTES):
            yield piece
