"""What stands in the way of a sound request: who asks, what exists, what state it is in, who is away."""

from __future__ import annotations

from registry.errors.tree import LorryError


class StorageFull(LorryError):
    """The disk that keeps uploads has no room."""

    code = "storage_full"


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


class BatchEnded(Conflict):
    """The batch, or the last of its lines, has ended and cannot be cancelled any more."""

    code = "batch_ended"


class NotEnded(Conflict):
    """The job or batch has not ended: it can be neither deleted nor run again."""

    code = "not_ended"


class NothingToRerun(Conflict):
    """No line of the batch failed, expired or was cancelled, or the texts of those lines are gone."""

    code = "nothing_to_rerun"


class PreconditionFailed(LorryError):
    """The thing is not any more what the request takes it for (If-Match)."""

    code = "precondition_failed"


class WebhookTestFailed(LorryError):
    """A webhook endpoint's receiver could not be reached, or said nothing in time."""

    code = "webhook_test_failed"


class IdempotencyInFlight(Conflict):
    """Another request with the same Idempotency-Key is being answered; asking again in a second gets its answer."""

    code = "idempotency_in_flight"
    retry_after_s = 1


class RateLimited(LorryError):
    """More at a time than the tenant's limit; after `retry_after_s` it may go."""

    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after_s: int, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.retry_after_s = retry_after_s


class InsufficientQuota(LorryError):
    """More than the tenant may use or keep; repeating the request a moment later does not help."""

    code = "insufficient_quota"


class CompletionTimeout(LorryError):
    """The job has not ended while its caller waited; it goes on, and the message says where to poll it."""

    code = "completion_timeout"


class Unavailable(LorryError):
    """A neighbour (the database) is away; the caller should try again."""

    code = "unavailable"
    retry_after_s = 2


class ConfigurationError(LorryError):
    """The operator's settings contradict each other or the machine."""

    code = "configuration_error"
