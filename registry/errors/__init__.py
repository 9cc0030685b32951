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
    │   ├── IdempotencyKeyReused
    │   ├── AdapterRejected     one code per reason, see registry/adapter_files/
    │   └── LineRefused         a line of a batch; listed in the batch, never the answer to a request
    │       ├── InvalidJsonLine
    │       ├── LineTooLong
    │       ├── MissingCustomId
    │       ├── DuplicateCustomId
    │       ├── UrlMismatch
    │       ├── EmptyFile       these three are about the lines together
    │       ├── TooManyTasks
    │       └── TooManyBadLines
    ├── Unauthorized            the same for every reason
    ├── NotFound                missing and foreign look alike
    ├── Conflict                the row has moved on
    │   ├── JobEnded
    │   ├── BatchEnded
    │   ├── NotEnded
    │   ├── NothingToRerun
    │   └── IdempotencyInFlight the first of two equal requests is still at work
    ├── PreconditionFailed      it has changed since the caller looked
    ├── StorageFull             nothing was kept; the operator has to make room
    ├── WebhookTestFailed       the receiver gave no answer
    ├── RateLimited             too much at a time: wait
    ├── InsufficientQuota       too much: waiting a moment does not help
    ├── CompletionTimeout       the job goes on, its caller stopped waiting
    ├── Unavailable             try again later
    └── EngineError             what a worker meets
        ├── EngineStartFailed
        ├── AdapterLoadFailed
        │   └── AdapterFilesLost
        ├── InvalidGeneration
        ├── GenerationFailed
        ├── OutputCorrupted
        ├── WorkerLost
        └── EngineDead

HTTP status codes are chosen in `api/errors.py` only. Messages never carry tenant text.
"""

from registry.errors.answers import (
    BatchEnded,
    CompletionTimeout,
    ConfigurationError,
    Conflict,
    IdempotencyInFlight,
    InsufficientQuota,
    JobEnded,
    NotEnded,
    NotFound,
    NothingToRerun,
    PreconditionFailed,
    RateLimited,
    StorageFull,
    Unauthorized,
    Unavailable,
    WebhookTestFailed,
)
from registry.errors.engine import (
    AdapterFilesLost,
    AdapterLoadFailed,
    EngineDead,
    EngineError,
    EngineStartFailed,
    GenerationFailed,
    InvalidGeneration,
    OutputCorrupted,
    WorkerLost,
)
from registry.errors.lines import (
    DuplicateCustomId,
    EmptyFile,
    InvalidJsonLine,
    LineRefused,
    LineTooLong,
    MissingCustomId,
    TooManyBadLines,
    TooManyTasks,
    UrlMismatch,
)
from registry.errors.requests import (
    AdapterRejected,
    AdapterUnavailable,
    BadRequest,
    BaseModelMismatch,
    IdempotencyKeyReused,
    InvalidField,
    InvalidJson,
    InvalidText,
    MethodNotAllowed,
    ModelNotFound,
    PromptTooLong,
    RequestTimeout,
    RequestTooLarge,
    UnsupportedMediaType,
)
from registry.errors.tree import (
    LorryError,
)

__all__ = [
    "AdapterFilesLost",
    "AdapterLoadFailed",
    "AdapterRejected",
    "AdapterUnavailable",
    "BadRequest",
    "BaseModelMismatch",
    "BatchEnded",
    "CompletionTimeout",
    "ConfigurationError",
    "Conflict",
    "DuplicateCustomId",
    "EmptyFile",
    "EngineDead",
    "EngineError",
    "EngineStartFailed",
    "GenerationFailed",
    "IdempotencyInFlight",
    "IdempotencyKeyReused",
    "InsufficientQuota",
    "InvalidField",
    "InvalidGeneration",
    "InvalidJson",
    "InvalidJsonLine",
    "InvalidText",
    "JobEnded",
    "LineRefused",
    "LineTooLong",
    "LorryError",
    "MethodNotAllowed",
    "MissingCustomId",
    "ModelNotFound",
    "NotEnded",
    "NotFound",
    "NothingToRerun",
    "OutputCorrupted",
    "PreconditionFailed",
    "PromptTooLong",
    "RateLimited",
    "RequestTimeout",
    "RequestTooLarge",
    "StorageFull",
    "TooManyBadLines",
    "TooManyTasks",
    "Unauthorized",
    "Unavailable",
    "UnsupportedMediaType",
    "UrlMismatch",
    "WebhookTestFailed",
    "WorkerLost",
]
