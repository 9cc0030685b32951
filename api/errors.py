"""From errors to answers: the one table of HTTP status codes, and the form in which every error leaves.

An answer is a problem (RFC 9457) that also has OpenAI's `error` member, so that both kinds of client find their
message. It never repeats what the caller sent, save plain field names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import DataError, IntegrityError
from starlette.exceptions import HTTPException

from registry.errors import (
    AdapterRejected,
    BadRequest,
    Conflict,
    EngineError,
    InvalidText,
    LorryError,
    MethodNotAllowed,
    NotFound,
)
from registry.validation import as_lorry_error


@dataclass(frozen=True, slots=True)
class Kind:
    """How one code leaves: the status and the problem's title."""

    status: int
    title: str


KINDS: Final[dict[str, Kind]] = {
    "invalid_request": Kind(400, "The request is not valid"),
    "invalid_value": Kind(400, "A field has a value that is not allowed"),
    "invalid_json": Kind(400, "The text is not acceptable JSON"),
    "invalid_text": Kind(400, "The text cannot be stored"),
    "prompt_too_long": Kind(400, "The prompt does not fit the context"),
    "base_model_mismatch": Kind(400, "The model belongs to another base"),
    "invalid_api_key": Kind(401, "The API key is not valid"),
    "not_found": Kind(404, "Not found"),
    "model_not_found": Kind(404, "The model does not exist"),
    "method_not_allowed": Kind(405, "The method is not allowed here"),
    "request_timeout": Kind(408, "The body did not arrive in time"),
    "conflict": Kind(409, "The state does not allow it"),
    "job_ended": Kind(409, "The job has ended"),
    "batch_ended": Kind(409, "The batch has ended"),
    "not_ended": Kind(409, "It has not ended"),
    "nothing_to_rerun": Kind(409, "There is nothing to run again"),
    "idempotency_in_flight": Kind(409, "The same request is being answered"),
    "adapter_unavailable": Kind(409, "The adapter version cannot be used"),
    "precondition_failed": Kind(412, "It has changed meanwhile"),
    "request_too_large": Kind(413, "The request is too large"),
    "unsupported_media_type": Kind(415, "The body has a type that is not taken"),
    "adapter_rejected": Kind(422, "The adapter cannot be served"),
    "idempotency_key_reused": Kind(422, "The key belongs to another request"),
    "webhook_test_failed": Kind(424, "The receiver gave no answer"),
    "rate_limit_exceeded": Kind(429, "Too much at a time"),
    "insufficient_quota": Kind(429, "Too much"),
    "internal_error": Kind(500, "Internal error"),
    "configuration_error": Kind(500, "The installation is not set up for this"),
    "engine_error": Kind(500, "Engine error"),
    "engine_start_failed": Kind(500, "The engine did not start"),
    "adapter_load_failed": Kind(500, "The adapter could not be loaded"),
    "adapter_files_lost": Kind(500, "The adapter's files are gone"),
    "invalid_generation": Kind(500, "The engine refused the request"),
    "generation_failed": Kind(500, "The engine lost the request"),
    "engine_dead": Kind(500, "The engine ended"),
    "output_corrupted": Kind(500, "The output was not usable"),
    "worker_lost": Kind(500, "The worker died of it"),
    "unavailable": Kind(503, "Temporarily unavailable"),
    "completion_timeout": Kind(504, "The job has not ended yet"),
    "storage_full": Kind(507, "No room to keep it"),
}

_OPENAI_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
# Clients repeat a 409 or 500 by themselves: these stay what they are, however often they are asked.
_FINAL: Final = frozenset(
    {
        "conflict",
        "job_ended",
        "batch_ended",
        "not_ended",
        "nothing_to_rerun",
        "adapter_unavailable",
        "configuration_error",
        "insufficient_quota",
        "completion_timeout",
    }
)


class ProblemResponse(JSONResponse):
    """JSON under the problem media type."""

    media_type = "application/problem+json"


def problem(error: LorryError, request_id: str) -> ProblemResponse:
    """The answer for an error."""
    kind = KINDS[error.code]
    detail = f"{error.message} {error.repair}".strip() if isinstance(error, AdapterRejected) else error.message
    openai: dict[str, Any] = {
        "message": detail,
        "type": _openai_type(kind.status),
        "param": error.param,
        "code": error.code,
    }
    content: dict[str, Any] = {
        "type": f"urn:lorry:error:{error.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
        "instance": f"urn:lorry:request:{request_id}",
        "error": openai,
        "request_id": request_id,
    }
    if isinstance(error, AdapterRejected):
        content["reason"] = openai["reason"] = error.reason
    return ProblemResponse(content, kind.status, headers=_headers(error, kind.status))


def install(app: FastAPI) -> None:
    """Let every error that a route, FastAPI or Starlette raises leave as a problem.

    The handlers are async so that a refusal takes no thread: all may be waiting for the database.
    """
    app.add_exception_handler(LorryError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_error)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(DataError, _on_error)
    app.add_exception_handler(IntegrityError, _on_error)


def understood(error: Exception) -> LorryError:
    """The error of our tree that stands for any exception."""
    if isinstance(error, LorryError):
        return error
    if isinstance(error, RequestValidationError):
        return as_lorry_error(error.errors())
    if isinstance(error, DataError):
        # The checks above should have named the field; the database is only the last fence, and no server error.
        return InvalidText("The request contains a text or number that cannot be stored.")
    if isinstance(error, IntegrityError):
        return Conflict("The request meets a change made at the same moment; read the state again.")
    return LorryError("Something went wrong here, not in your request. Quote the request id when you report it.")


async def _on_error(request: Request, error: Exception) -> ProblemResponse:
    return problem(understood(error), request.state.request_id)


async def _on_http(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)
    answer = problem(_of_status(error.status_code), request.state.request_id)
    answer.headers.update(error.headers or {})
    return answer


def _of_status(status: int) -> LorryError:
    if status == 404:
        return NotFound("There is nothing at this address; GET /openapi.json lists the addresses.")
    if status == 405:
        return MethodNotAllowed("This address does not take this method; the `allow` header says which it takes.")
    return BadRequest("The request could not be read.") if status < 500 else LorryError("Something went wrong here.")


def _openai_type(status: int) -> str:
    return _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


def _headers(error: LorryError, status: int) -> dict[str, str]:
    if status == 401:
        return {"www-authenticate": 'Bearer realm="lorry"'}
    if error.retry_after_s is not None:
        return {"retry-after": str(error.retry_after_s)}
    # What an engine said about a job is said of the job for good.
    is_final = error.code in _FINAL or isinstance(error, EngineError)
    return {"x-should-retry": "false"} if is_final else {}
