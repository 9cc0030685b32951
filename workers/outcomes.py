"""From how a job's run ended to what the registry shall say: one function, no I/O.

Generated                     -> succeeded
GenerationFailed, first time  -> handed back, one attempt spent
EngineDead                    -> handed back with a crash counted; after two it runs alone, the third time it failed
HandBack                      -> handed back unharmed
any other LorryError          -> failed with the error's code
Gone                          -> nothing: the row was cancelled or belongs to somebody else
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from registry.errors import EngineDead, GenerationFailed, LorryError, WorkerLost
from registry.transitions import MAX_CRASHES, Outcome, Spends
from workers.generation import Generated
from workers.held import HeldJob

ANOTHER_TENANTS = "another tenant's adapter"
LOST = "The engine died each time this job ran, at last with nothing beside it. Change the document."
MAX_ATTEMPTS = 2
"""A request that the engine lost is tried once more."""


@dataclass(frozen=True, slots=True)
class HandBack:
    """The job returns to the backlog. Who spends too much does not: see `conclude`."""

    spends: Spends = "nothing"


@dataclass(frozen=True, slots=True)
class Gone:
    """Somebody else has ended the job or will: write nothing."""


Ending: TypeAlias = Generated | LorryError | HandBack | Gone


def conclude(job: HeldJob, ending: Ending, *, stalled_ms: float) -> Outcome | HandBack | None:
    """What to write for a job; None for nothing."""
    match ending:
        case Gone():
            return None
        case HandBack():
            return ending
        case EngineDead() if job.claimed.crashes + 1 < MAX_CRASHES:
            return HandBack("crash")
        case EngineDead():  # it ran alone
            return failed(job.claimed.job_id, job.claimed.fence, WorkerLost(LOST))
        case GenerationFailed() if job.claimed.attempts + 1 < MAX_ATTEMPTS:
            return HandBack("attempt")
        case LorryError():
            return failed(job.claimed.job_id, job.claimed.fence, ending)
        case _:
            return _succeeded(job, ending, stalled_ms)


def failed(job_id: Any, fence: int, error: LorryError) -> Outcome:
    """A job's failure, in the words of the error: they carry no tenant text."""
    return Outcome(job_id, fence, "failed", error_code=error.code, error_message=error.message)


def _succeeded(job: HeldJob, result: Generated, stalled_ms: float) -> Outcome:
    held_ms = max(0.0, (job.admitted_at_s - job.held_at_s) * 1000 - job.swap_wait_ms)
    swap = _swap(job, stalled_ms) if job.generation.adapter is not None else None
    parts = job.claimed.overflow or {}  # what its document's parts took before this run
    timing = {
        "queued_ms": round(job.claimed.queued_ms, 3),
        "held_ms": round(held_ms, 3),
        "swap": swap,
        "prefill_ms": round(result.prefill_ms + parts.get("prefill_ms", 0.0), 3),
        "decode_ms": round(result.decode_ms + parts.get("decode_ms", 0.0), 3),
        "running_batch": {"jobs": job.batch_jobs, "adapters": job.batch_adapters},
    }
    accounted_ms = job.claimed.queued_ms + held_ms + job.swap_wait_ms + result.prefill_ms + result.decode_ms
    return Outcome(
        job.claimed.job_id,
        job.claimed.fence,
        "succeeded",
        text=result.text,
        finish_reason=result.finish_reason,
        prompt_tokens=result.prompt_tokens + parts.get("prompt_tokens", 0),
        output_tokens=result.output_tokens + parts.get("output_tokens", 0),
        timing=timing,
        accounted_ms=accounted_ms,
        swap_ms=_swap_share_ms(job),
        engine_ms=job.engine_ms,
        overflow=job.overflow,
    )


def _swap(job: HeldJob, stalled_ms: float) -> dict[str, Any]:
    record = job.swap
    if record is None:
        return {"state": "hot", "stalled_ms": round(stalled_ms, 3)}
    return {
        "state": record.swap.state,
        "fetch_ms": round(record.fetch_ms, 3),
        "load_ms": round(record.swap.load_ms, 3),
        "activate_ms": round(record.swap.activate_ms, 3),
        "wait_ms": round(job.swap_wait_ms, 3),
        "evicted": _told(record.evicted, job.claimed.tenant_id),
        "shared_by": record.shared_by,
        "stalled_ms": round(stalled_ms, 3),
    }


def _told(evicted: str | None, tenant_id: str) -> str | None:
    """No tenant learns another's adapters: a foreign name becomes `ANOTHER_TENANTS`."""
    return evicted if evicted is None or evicted.startswith(f"{tenant_id}/") else ANOTHER_TENANTS


def _swap_share_ms(job: HeldJob) -> float:
    """A swap is paid for once: its cost is split among the jobs that waited for it."""
    record = job.swap
    if record is None:
        return 0.0
    return (record.fetch_ms + record.swap.load_ms + record.swap.activate_ms) / max(1, record.shared_by)
