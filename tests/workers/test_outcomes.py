"""From a run's end to what is written: codes, hand-backs, and the timing's arithmetic."""

from __future__ import annotations

import pytest

from registry.errors import (
    AdapterLoadFailed,
    EngineDead,
    EngineError,
    GenerationFailed,
    InvalidGeneration,
    LorryError,
    OutputCorrupted,
)
from registry.transitions import MAX_CRASHES, Outcome
from tests.workers.held_jobs import held_job
from workers.generation import Generated, Swap
from workers.held import HeldJob, SwapRecord
from workers.outcomes import Ending, Gone, HandBack, conclude, failed

DONE = Generated("text", "stop", 7, 3, 0, 0.5, 20.0, 30.0, 1.0, corrupted=False)


def ran(adapter: int = 1, *, attempts: int = 0, crashes: int = 0) -> HeldJob:
    """Held at 10 s, in the engine from 12 s on with three beside it."""
    job = held_job(adapter, held_at_s=10.0, attempts=attempts, crashes=crashes)
    job.engine_ms = 250.0
    job.admitted_at_s, job.batch_jobs, job.batch_adapters = 12.0, 4, 2
    return job


def written(job: HeldJob, ending: Ending = DONE) -> Outcome | HandBack | None:
    return conclude(job, ending, stalled_ms=1.5)


@pytest.mark.parametrize("error", [InvalidGeneration, AdapterLoadFailed, OutputCorrupted, EngineError])
def test_an_error_of_the_jobs_own_fails_it_with_its_code(error: type[LorryError]) -> None:
    job = ran()
    assert written(job, error("why")) == Outcome(job.job_id, 1, "failed", error_code=error.code, error_message="why")


def test_a_lost_request_is_tried_once_more() -> None:
    assert written(ran(), GenerationFailed("lost")) == HandBack("attempt")
    outcome = written(ran(attempts=1), GenerationFailed("lost"))
    assert isinstance(outcome, Outcome)
    assert outcome.error_code == "generation_failed"


def test_a_drain_spends_nothing() -> None:
    assert written(ran(attempts=1, crashes=2), HandBack()) == HandBack("nothing")


def test_a_dead_engine_counts_as_a_crash_and_the_last_one_alone_fails_the_job() -> None:
    assert written(ran(attempts=1), EngineDead("gone")) == HandBack("crash")
    outcome = written(ran(crashes=MAX_CRASHES - 1), EngineDead("gone"))
    assert isinstance(outcome, Outcome)
    assert (outcome.state, outcome.error_code) == ("failed", "worker_lost")


def test_of_a_job_that_is_somebody_elses_nothing_is_written() -> None:
    assert written(ran(), Gone()) is None


def test_a_hot_job_waited_for_no_swap() -> None:
    outcome = written(ran())
    assert isinstance(outcome, Outcome)
    assert outcome.timing == {
        "queued_ms": 5.0,
        "held_ms": 2000.0,
        "swap": {"state": "hot", "stalled_ms": 1.5},
        "prefill_ms": 20.0,
        "decode_ms": 30.0,
        "running_batch": {"jobs": 4, "adapters": 2},
    }
    assert (outcome.accounted_ms, outcome.swap_ms, outcome.engine_ms) == (2055.0, 0.0, 250.0)
    assert (outcome.state, outcome.text, outcome.prompt_tokens, outcome.output_tokens) == ("succeeded", "text", 7, 3)


def test_the_parts_of_a_swap_are_told_and_paid_once_among_those_who_shared_it() -> None:
    job = ran()
    swap = Swap("cold", 40.0, 6.0, (), 10.5, 11.0)
    job.swap, job.swap_wait_ms = SwapRecord(swap, 2.0, "acme/notes@3", shared_by=4), 500.0
    outcome = written(job)
    assert isinstance(outcome, Outcome)
    assert outcome.timing is not None
    assert outcome.timing["held_ms"] == 1500.0, "waiting for the swap is told apart"
    assert outcome.timing["swap"] == {
        "state": "cold",
        "fetch_ms": 2.0,
        "load_ms": 40.0,
        "activate_ms": 6.0,
        "wait_ms": 500.0,
        "evicted": "acme/notes@3",
        "shared_by": 4,
        "stalled_ms": 1.5,
    }
    assert (outcome.swap_ms, outcome.accounted_ms) == (12.0, 2055.0)


def test_the_evicted_adapter_of_another_tenant_is_not_named() -> None:
    job = ran()
    job.swap = SwapRecord(Swap("cold", 40.0, 6.0, (), 10.5, 11.0), 2.0, "globex/secret-project@3", shared_by=1)
    outcome = written(job)
    assert isinstance(outcome, Outcome)
    assert outcome.timing is not None
    assert outcome.timing["swap"]["evicted"] == "another tenant's adapter"


def test_a_job_of_the_bare_base_has_no_swap() -> None:
    outcome = written(ran(adapter=0))
    assert isinstance(outcome, Outcome)
    assert outcome.timing is not None
    assert outcome.timing["swap"] is None


def test_a_failure_before_the_planner_carries_the_errors_words() -> None:
    job = held_job()
    outcome = failed(job.job_id, 3, InvalidGeneration("too long"))
    assert (outcome.fence, outcome.error_code, outcome.error_message) == (3, "invalid_generation", "too long")
