"""Requests that cannot be served as they are: the caller can mend them."""

from __future__ import annotations

from registry.errors.tree import LorryError


class BadRequest(LorryError):
    """The request cannot be served as it is; the message says how to mend it."""

    code = "invalid_request"


class InvalidField(BadRequest):
    """One field has a value that is not allowed."""

    code = "invalid_value"


class InvalidText(BadRequest):
    """Text that JSON or PostgreSQL cannot hold: NUL, lone surrogates, not UTF-8."""

    code = "invalid_text"


class InvalidJson(BadRequest):
    """The body, or a line, is not the JSON we accept: broken, nested too deeply, doubled keys, NaN."""

    code = "invalid_json"


class RequestTooLarge(BadRequest):
    """The body, or a part of it, is larger than the limit."""

    code = "request_too_large"


class RequestTimeout(BadRequest):
    """The body did not arrive in time."""

    code = "request_timeout"


class UnsupportedMediaType(BadRequest):
    """The body's content type or encoding is not one that this address takes."""

    code = "unsupported_media_type"


class MethodNotAllowed(BadRequest):
    """The address exists, but not for this method."""

    code = "method_not_allowed"


class PromptTooLong(BadRequest):
    """Prompt and `max_tokens` together exceed the deployment's context length."""

    code = "prompt_too_long"


class ModelNotFound(BadRequest):
    """`model` names nothing of this tenant: an adapter, `adapter@version` or a base model."""

    code = "model_not_found"


class BaseModelMismatch(BadRequest):
    """`base_model` is not the base that the adapter belongs to."""

    code = "base_model_mismatch"


class AdapterUnavailable(BadRequest):
    """The adapter version is retired or quarantined."""

    code = "adapter_unavailable"


class AdapterRejected(BadRequest):
    """The adapter folder cannot be served; `reason` is the stable code of the first problem."""

    code = "adapter_rejected"

    def __init__(self, message: str, *, reason: str, repair: str = "", param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.reason = reason
        self.repair = repair


class IdempotencyKeyReused(BadRequest):
    """The Idempotency-Key was used with another body."""

    code = "idempotency_key_reused"
