"""The body of POST /v1/batches: a JSON object that names an uploaded file, or the lines themselves as they come."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from api.body import check_media_type, in_blocks, json_body
from api.deps import Caller, Shared
from api.idempotency import once_of
from api.services import Services
from registry import files, ids
from registry.batches.create import Origin, Submission
from registry.batches.lines import JOBS
from registry.batches.options import BatchCreate, BatchOptions
from registry.errors import InvalidField, InvalidJson, NotFound
from registry.json_text import parse_object
from registry.keys import Caller as KnownCaller
from registry.prompts import PromptFormat
from registry.store import mapped_full_disk
from registry.validation import checked, unknown_field
from registry.webhooks import targets

NDJSON: Final = "application/x-ndjson"
_QUERY: Final[dict[str, dict[str, Any]]] = {
    "completion_window": {"type": "string", "default": "24h", "description": "1h to 168h, or 1d to 7d."},
    "on_bad_line": {"type": "string", "enum": ["fail", "skip"], "default": "fail"},
    "metadata": {"type": "string", "description": "A JSON object of up to 16 texts."},
    "output_expires_after": {"type": "integer", "minimum": 3600, "maximum": 2_592_000, "description": "Seconds."},
    "webhook_url": {"type": "string", "description": "Where the batch's end is announced."},
    "dry_run": {"type": "boolean", "default": False},
}

REQUEST: Final[dict[str, Any]] = {
    "parameters": [
        {"name": name, "in": "query", "required": False, "schema": schema, "description": f"With {NDJSON} only."}
        for name, schema in _QUERY.items()
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/BatchCreate"}},
            NDJSON: {"schema": {"type": "string", "description": "Bodies of POST /v1/jobs, one a line."}},
        },
    },
}


async def receive_batch(request: Request, services: Shared, caller: Caller) -> AsyncIterator[Submission]:
    """The dependency: a submission whose lines have all been checked. Its spool is gone after the request.

    Raises UnsupportedMediaType, RequestTooLarge, RequestTimeout, InvalidJson, InvalidField, NotFound, StorageFull.
    """

    def format_of(base: str) -> PromptFormat:
        with services.transaction(caller) as session:
            return services.prompt_format(session, base)

    def begin(options: BatchOptions, origin: Origin) -> Submission:
        if options.webhook_url is not None:
            targets.check_at_intake(services.webhook_rules, options.webhook_url, param="webhook_url")
        return Submission(services.database, services.settings, caller.tenant_id, options, origin, format_of)

    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == NDJSON:
        check_media_type(request, NDJSON)
        options = _options(request)
        with await run_in_threadpool(begin, options, Origin("ndjson", JOBS)) as submission:
            await _feed(request, services.settings.max_file_bytes, submission)
            yield submission
        return
    if request.query_params:
        raise InvalidField("With a JSON body the options belong into the body, not into the address.")
    wanted = await json_body(BatchCreate)(request, services)
    file_id, path = await run_in_threadpool(_input, services, caller, wanted.input_file_id)
    with await run_in_threadpool(begin, wanted, Origin("file", wanted.endpoint, file_id)) as submission:
        await run_in_threadpool(_feed_file, submission, path)
        yield submission


async def _feed(request: Request, max_bytes: int, submission: Submission) -> None:
    digest = hashlib.sha256()
    with mapped_full_disk():
        async for block in in_blocks(request, max_bytes):
            digest.update(block)
            await run_in_threadpool(submission.intake.feed, block)
        await run_in_threadpool(submission.intake.finish)
    await run_in_threadpool(once_of(request).compare, digest.digest())


def _feed_file(submission: Submission, path: Path) -> None:
    try:
        with mapped_full_disk():
            submission.feed_file(path)
    except FileNotFoundError:
        raise NotFound("The input file has just been deleted.", param="input_file_id") from None


def _input(services: Services, caller: KnownCaller, wire_id: str) -> tuple[uuid.UUID, Path]:
    """The uploaded file of this id. Raises NotFound, and InvalidField for a file that a batch has made."""
    try:
        with services.transaction(caller) as session:
            row = files.get(session, caller.tenant_id, ids.from_wire("file", wire_id))
    except NotFound as error:
        raise NotFound(error.message, param="input_file_id") from None
    if row.path is None:
        raise InvalidField("The input file has to be an upload, not the output of a batch.", param="input_file_id")
    return row.id, Path(row.path)


def _options(request: Request) -> BatchOptions:
    """The options in the address, each at most once."""
    fields: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name not in _QUERY:
            raise unknown_field(name)
        if name in fields:
            raise InvalidField(f"{name}: give it once.", param=name)
        fields[name] = _READ.get(name, str)(value)
    return checked(BatchOptions, fields)


def _metadata(value: str) -> Any:
    try:
        return parse_object(value.encode(), "metadata")
    except (InvalidJson, UnicodeEncodeError):
        raise InvalidField("metadata: it has to be a JSON object.", param="metadata") from None


def _expiry(value: str) -> Any:
    return {"seconds": int(value) if value.isascii() and value.isdigit() and len(value) < 10 else value}


def _truth(value: str) -> Any:
    return {"true": True, "false": False}.get(value, value)


_READ: Final[dict[str, Callable[[str], Any]]] = {
    "metadata": _metadata,
    "output_expires_after": _expiry,
    "dry_run": _truth,
}
