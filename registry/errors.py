"""Every error Lorry raises: one tree, a stable code each, messages that say what to do.

    LorryError
    ├── BadRequest              the caller can mend it
    │   ├── InvalidField
    │   ├── InvalidJson
    │   ├── InvalidText
    │   ├── RequestTooLarge
    │   ├── RequestTimeout
    │   ├── UnsupportedMediaType
    │   ├── MethodNotAllowed
    │   ├── PromptTooLong
    │   ├── BaseModelMismatch
    │   └── AdapterRejected     one code per reason, see registry/adapter_files/
    ├── Unauthorized            key_invalid
    ├── NotFound                missing and foreign look alike
    ├── Conflict                the row has moved on
    │   └── JobEnded
    ├── Unavailable             try again later
    └── EngineError             what a worker meets
        ├── EngineStartFailed
        ├── AdapterLoadFailed
        ├── InvalidGeneration
        ├── GenerationFailed
        ├── OutputCorrupted
        └── EngineDead

HTTP status codes are chosen in `api/errors.py` only. Messages never carry tenant text.
"""

from __future__ import annotations

from typing import ClassVar


class LorryError(Exception):
    """Base of the tree. `param` names the offending field, where there is one."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


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


class Unauthorized(LorryError):
    """No API key, or one that is unknown, revoked or expired."""

    code = "invalid_api_key"


class NotFound(LorryError):
    """No such thing for this caller; things of other tenants answer alike."""

    code = "not_found"


class Conflict(LorryError):
    """The thing exists already, or its state does not allow the change."""

    code = "conflict"


class JobEnded(Conflict):
    """The job has ended otherwise and cannot be cancelled any more."""

    code = "job_ended"


class Unavailable(LorryError):
    """A neighbour (the database) is away; the caller should try again."""

    code = "unavailable"


class ConfigurationError(LorryError):
    """The operator's settings contradict each other or the machine."""

    code = "configuration_error"


class EngineError(LorryError):
    """What running a job can meet; the settling rules of `workers/outcomes.py` turn each into a state."""

    code = "engine_error"


class EngineStartFailed(EngineError):
    """The engine did not come up; the message carries vLLM's reason."""

    code = "engine_start_failed"


class AdapterLoadFailed(EngineError):
    """The engine refused the adapter; only this adapter's jobs fail."""

    code = "adapter_load_failed"


class InvalidGeneration(EngineError):
    """The engine refused the request itself; only this job fails."""

    code = "invalid_generation"


class GenerationFailed(EngineError):
    """The engine lost this one request; it is tried once more."""

    code = "generation_failed"


class OutputCorrupted(EngineError):
    """The adapter computes NaN on a clean cache too; its output is never delivered."""

    code = "output_corrupted"


class EngineDead(EngineError):
    """The engine is gone with everything in it: hand back and restart."""

    code = "engine_dead"
