"""The OpenAPI document: FastAPI's, with the bodies that we read ourselves and the form of our errors."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.adapters import Activation
from api.webhook_shapes import EndpointCreate, EndpointTest, EndpointUpdate, SecretRotation
from registry.batches.options import BatchCreate
from registry.shapes import JobCreate

_BODIES: Final[tuple[type[BaseModel], ...]] = (
    JobCreate,
    BatchCreate,
    Activation,
    EndpointCreate,
    EndpointUpdate,
    SecretRotation,
    EndpointTest,
)
_PRIVATE: Final = {
    400: "The request is not valid",
    401: "The API key is not valid",
    503: "The database is away; try again",
}
_BY_ROUTE: Final[dict[tuple[str, str], dict[int, str]]] = {
    ("get", "/readyz"): {503: "The database is away or lacks migrations"},
    ("post", "/v1/jobs"): {404: "No such model", 409: "The adapter version cannot be used"},
    ("post", "/v1/chat/completions"): {404: "No such model", 500: "The job failed", 504: "The job has not ended yet"},
    ("post", "/v1/completions"): {404: "No such model", 500: "The job failed", 504: "The job has not ended yet"},
    ("get", "/v1/jobs/{job_id}"): {404: "No such job"},
    ("post", "/v1/jobs/{job_id}/cancel"): {404: "No such job", 409: "The job has ended"},
    ("delete", "/v1/jobs/{job_id}"): {404: "No such job", 409: "The job has not ended"},
    ("get", "/v1/batches/{batch_id}"): {404: "No such batch"},
    ("delete", "/v1/batches/{batch_id}"): {404: "No such batch", 409: "The batch has not ended"},
    ("get", "/v1/batches/{batch_id}/results"): {404: "No such batch"},
    ("post", "/v1/batches/{batch_id}/cancel"): {404: "No such batch", 409: "The batch has ended"},
    ("post", "/v1/batches/{batch_id}/rerun"): {404: "No such batch or model", 409: "There is nothing to run again"},
    ("get", "/v1/models/{model}"): {404: "No such model"},
    ("post", "/v1/files"): {507: "No room to keep it"},
    ("get", "/v1/files/{file_id}"): {404: "No such file"},
    ("delete", "/v1/files/{file_id}"): {404: "No such file"},
    ("get", "/v1/files/{file_id}/content"): {404: "No such file"},
    ("post", "/v1/batches"): {404: "No such file", 507: "No room to keep it"},
    ("post", "/v1/webhook_endpoints"): {409: "There are too many endpoints"},
    ("get", "/v1/webhook_endpoints/{endpoint_id}"): {404: "No such endpoint"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}"): {404: "No such endpoint", 409: "It cannot be changed"},
    ("delete", "/v1/webhook_endpoints/{endpoint_id}"): {404: "No such endpoint", 409: "It cannot be deleted"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}/rotate_secret"): {404: "No such endpoint"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}/test"): {
        404: "No such endpoint",
        409: "The endpoint is disabled",
        424: "The receiver gave no answer",
    },
    ("get", "/v1/webhook_endpoints/{endpoint_id}/deliveries"): {404: "No such endpoint"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}/redeliver"): {404: "No such endpoint", 409: "It is disabled"},
    ("post", "/v1/webhook_endpoints/{endpoint_id}/deliveries/{delivery_id}/redeliver"): {
        404: "No such delivery",
        409: "The endpoint is disabled",
    },
    ("post", "/v1/adapters"): {
        404: "No such base model",
        409: "The name is taken",
        422: "The adapter is refused",
        507: "No room to keep it",
    },
    ("get", "/v1/adapters/{adapter}"): {404: "No such adapter"},
    ("post", "/v1/adapters/{adapter}/activate"): {
        404: "No such version",
        409: "The version cannot be used",
        412: "Another version has become active",
    },
}
_ANY_POST: Final = {
    409: "The same request is being answered",
    422: "The Idempotency-Key belongs to another request",
    429: "Too much at a time, or too much",
}
_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1 to 255 printable ASCII characters: the request has its effect once within 24 hours.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
}
_PREFER: Final = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`wait=N`: wait up to N seconds for the job's end.",
    "schema": {"type": "string", "pattern": "^wait=[0-9]{1,2}$"},
}
_WAITING: Final = frozenset({("post", "/v1/jobs"), ("get", "/v1/jobs/{job_id}")})
_WITH_BODY: Final = {408: "The body came too slowly", 413: "The body is too large", 415: "The body has another type"}


class OpenAIError(BaseModel):
    """The part of an error that OpenAI's clients read."""

    message: str
    type: str
    param: str | None
    code: str


class Problem(BaseModel):
    """An error (RFC 9457). Branch on `error.code`; the sentences may change."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error: OpenAIError
    request_id: str


def install(app: FastAPI) -> None:
    """Let the app answer /openapi.json with the complete document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    models = [(model, "validation") for model in (*_BODIES, Problem)]
    _, made = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    schemas = document["components"]["schemas"]
    schemas.update(made["$defs"])
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _describe_errors(method, path, operation)
            _describe_headers(method, path, operation)
    created = document["paths"]["/v1/jobs"]["post"]["responses"]
    created["200"] = created["202"] | {"description": "The job has ended within the preferred wait"}
    return document


def _describe_errors(method: str, path: str, operation: dict[str, Any]) -> None:
    statuses = _BY_ROUTE.get((method, path), {})
    if "security" in operation:
        statuses = statuses | _PRIVATE
    if "security" in operation and method == "post":
        statuses = _ANY_POST | statuses
    if "requestBody" in operation:
        statuses = statuses | _WITH_BODY
    responses = operation["responses"]
    responses.pop("422", None)
    schema = {"$ref": "#/components/schemas/Problem"}
    for status, description in sorted(statuses.items()):
        content = {"application/problem+json": {"schema": schema}}
        responses[str(status)] = {"description": description, "content": content}


def _describe_headers(method: str, path: str, operation: dict[str, Any]) -> None:
    keyed = [_IDEMPOTENCY_KEY] if method == "post" and "security" in operation else []
    waiting = [_PREFER] if (method, path) in _WAITING else []
    if keyed or waiting:
        operation["parameters"] = [*operation.get("parameters", []), *keyed, *waiting]
