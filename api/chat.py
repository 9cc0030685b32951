"""/v1/chat/completions and /v1/completions, not streamed: a job, and a bounded wait for it.

The wait holds no thread and no connection. When it is over first, the answer is an error that names the job, which goes
on. It goes on as well when the client is gone: a client that repeats its request by itself finds the same job again,
and `POST /v1/jobs/{id}/cancel` stops one that nobody wants any more.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from api.body import body_or_first
from api.deps import Caller, Shared
from api.idempotency import REPLAYED, Idempotent, Once, Replayed
from api.jobs import read_job, submit_job
from api.services import Services
from registry import ids, openai_body
from registry.errors import CompletionTimeout, EngineError, JobEnded, LorryError
from registry.keys import Caller as KnownCaller
from registry.shapes import JobCreate, JobView, Timing

router = APIRouter(tags=["completions"])

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "description": "As OpenAI's; a field not served is refused by name."}
            }
        },
    }
}
Finish = Literal["stop", "length"]


class Answer(BaseModel):
    """The assistant's message."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    """The only choice."""

    index: Literal[0] = 0
    message: Answer
    logprobs: None = None
    finish_reason: Finish


class TextChoice(BaseModel):
    """The only choice."""

    index: Literal[0] = 0
    text: str
    logprobs: None = None
    finish_reason: Finish


class Tokens(BaseModel):
    """Usage in the words of this API."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class JobFacts(BaseModel):
    """What the job behind the answer says of itself: our addition to OpenAI's shape."""

    job_id: str
    adapter_version: int | None
    timing: Timing | None


class _Completion(BaseModel):
    id: str
    created: int
    model: str
    usage: Tokens
    lorry: JobFacts


class ChatCompletion(_Completion):
    """An answer to a chat."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]


class TextCompletion(_Completion):
    """A continued prompt."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[TextChoice]


@router.post("/chat/completions", openapi_extra=_BODY)
async def create_chat_completion(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    wanted: Annotated[JobCreate | Replayed, Depends(body_or_first(openai_body.from_chat))],
    response: Response,
) -> ChatCompletion:
    """Answer a chat. Not streamed; for many at a time use `/v1/batches`."""
    view, finish, text = await _completed(services, caller, once, wanted, response)
    choice = ChatChoice(message=Answer(content=text), finish_reason=finish)
    return ChatCompletion(id=f"chatcmpl-{_hex(view)}", choices=[choice], **_common(view))


@router.post("/completions", openapi_extra=_BODY)
async def create_completion(
    services: Shared,
    caller: Caller,
    once: Idempotent,
    wanted: Annotated[JobCreate | Replayed, Depends(body_or_first(openai_body.from_completion))],
    response: Response,
) -> TextCompletion:
    """Continue a prompt. Not streamed; for many at a time use `/v1/batches`."""
    view, finish, text = await _completed(services, caller, once, wanted, response)
    choice = TextChoice(text=text, finish_reason=finish)
    return TextCompletion(id=f"cmpl-{_hex(view)}", choices=[choice], **_common(view))


async def _completed(
    services: Services, caller: KnownCaller, once: Once, wanted: JobCreate | Replayed, response: Response
) -> tuple[JobView, Finish, str]:
    """The succeeded job with its finish reason and text. Raises CompletionTimeout, and what became of another job."""
    job_id, is_repeated = await run_in_threadpool(_job_of, services, caller, once, wanted)
    await services.hub.ended(job_id, services.settings.completion_wait_s)
    view = await run_in_threadpool(read_job, services, caller, job_id)
    if view.finished_at is None:
        raise CompletionTimeout(f"The job {view.id} has not ended yet and goes on: poll GET /v1/jobs/{view.id}.")
    if view.output is None:
        raise _end_of(view)
    if is_repeated:
        response.headers.update(REPLAYED)
    return view, view.output.finish_reason, view.output.text


def _job_of(
    services: Services, caller: KnownCaller, once: Once, wanted: JobCreate | Replayed
) -> tuple[uuid.UUID, bool]:
    """The job to wait for, and whether it is an earlier request's."""
    if isinstance(wanted, JobCreate):
        try:
            return ids.from_wire("job", submit_job(services, caller, once, wanted).id), False
        except Replayed as first:
            wanted = first
    return ids.from_wire("job", json.loads(wanted.body)["id"]), True


def _end_of(view: JobView) -> LorryError:
    """The error that stands for a job without an output."""
    if view.error is None:
        return JobEnded(f"The job {view.id} was {view.status} while you waited.")
    kinds = {kind.code: kind for kind in _tree(LorryError)}
    return kinds.get(view.error.code, EngineError)(f"{view.error.message} (Job {view.id}.)")


def _tree(kind: type[LorryError]) -> Iterator[type[LorryError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _tree(child)


def _common(view: JobView) -> dict[str, Any]:
    assert view.usage is not None
    usage = Tokens(
        prompt_tokens=view.usage.input_tokens,
        completion_tokens=view.usage.output_tokens,
        total_tokens=view.usage.total_tokens,
    )
    facts = JobFacts(job_id=view.id, adapter_version=view.adapter_version, timing=view.timing)
    return {"created": view.created_at, "model": view.model, "usage": usage, "lorry": facts}


def _hex(view: JobView) -> str:
    return ids.from_wire("job", view.id).hex
