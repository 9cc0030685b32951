"""Request bodies: counted while they arrive, read strictly, checked by a model, once the caller is known.

FastAPI's own body parameters are not used: it reads a body whole before it asks for the key, and parses it leniently.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from api.idempotency import Once, Replayed, digest_of, once_of
from api.services import Services, services_of
from registry import json_text
from registry.errors import RequestTimeout, RequestTooLarge, UnsupportedMediaType
from registry.validation import checked

_PATIENCE_S: Final = 30.0
_SLOWEST_BYTES_PER_S: Final = 10_000
_BLOCK_BYTES: Final = 1024 * 1024

Model = TypeVar("Model", bound=BaseModel)
Made = TypeVar("Made")


def json_body(model: type[Model]) -> Callable[..., Awaitable[Model]]:
    """A dependency that gives the request's JSON body as `model`. Raises as `body_as` does."""
    return body_as(lambda fields: checked(model, fields))


def body_as(make: Callable[[dict[str, Any]], Made]) -> Callable[..., Awaitable[Made]]:
    """A dependency that gives what `make` makes of the request's JSON body, once that is known not to be a repetition.

    Raises UnsupportedMediaType, RequestTooLarge, RequestTimeout, InvalidJson, InvalidText, InvalidField, what `make`
    raises, and Replayed or IdempotencyKeyReused.
    """

    async def read(request: Request, services: Annotated[Services, Depends(services_of)]) -> Made:
        check_media_type(request, "application/json")
        raw = bytearray()
        async for chunk in limited(request, services.settings.max_body_bytes):
            raw += chunk
        # A large body takes milliseconds to parse: not on the loop that serves everybody.
        return await run_in_threadpool(_made, make, bytes(raw), once_of(request))

    return read


def body_or_first(make: Callable[[dict[str, Any]], Made]) -> Callable[..., Awaitable[Made | Replayed]]:
    """As `body_as`, but a repetition is given to the route: for answers that are not there yet when the effect is."""
    read = body_as(make)

    async def receive(request: Request, services: Annotated[Services, Depends(services_of)]) -> Made | Replayed:
        try:
            return await read(request, services)
        except Replayed as first:
            return first

    return receive


def check_media_type(request: Request, wanted: str) -> None:
    """Raise UnsupportedMediaType unless the body is of this type, not compressed and not in another charset."""
    media_type, *parameters = request.headers.get("content-type", "").lower().split(";")
    if media_type.strip() != wanted:
        raise UnsupportedMediaType(f"Send the body as {wanted}, with that content-type.")
    charsets = [p.partition("=")[2].strip(' "') for p in parameters if p.strip().startswith("charset=")]
    if any(charset not in ("utf-8", "utf8") for charset in charsets):
        raise UnsupportedMediaType("Send the body in UTF-8.")
    if request.headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise UnsupportedMediaType("Send the body without content-encoding; compressed bodies are not taken.")


async def limited(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body's chunks. Raises RequestTooLarge once there are more bytes than allowed, said so or not, and
    RequestTimeout when they trickle more slowly than 10 kB/s after 30 s."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > max_bytes:
        raise _too_large(max_bytes)
    received = 0
    begun = asyncio.get_running_loop().time()
    chunks = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(begun + _PATIENCE_S + received / _SLOWEST_BYTES_PER_S):
                chunk = await anext(chunks, None)
        except TimeoutError:
            raise RequestTimeout("The body came too slowly; send it at 10 kB/s or faster.") from None
        if chunk is None:
            return
        received += len(chunk)
        if received > max_bytes:
            raise _too_large(max_bytes)
        yield chunk


async def in_blocks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body of `limited` in pieces of about a MiB: worth handing to a thread. The last one may be empty."""
    block = bytearray()
    async for chunk in limited(request, max_bytes):
        block += chunk
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose body `json_body` reads."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _made(make: Callable[[dict[str, Any]], Made], raw: bytes, once: Once) -> Made:
    fields = json_text.parse_object(raw)
    once.compare(digest_of(fields))
    return make(fields)


def _too_large(max_bytes: int) -> RequestTooLarge:
    return RequestTooLarge(f"The body is larger than {max_bytes} bytes; send less at a time.")
