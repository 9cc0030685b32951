"""From a claimed job to what the engine takes: prompt tokens, sampling, adapter, cache salt.

Runs in the task's thread.
"""

from __future__ import annotations

import hashlib
import time

from registry import adapters
from registry.errors import AdapterUnavailable, InvalidField
from registry.prompts import PromptFormat
from registry.transitions import Claimed, Division
from workers.fitting import Fitting
from workers.generation import AdapterRef, Generation, Sampling
from workers.held import HeldJob


class Preparation:
    """One deployment's way of turning bodies into generations."""

    def __init__(self, prompt_format: PromptFormat, max_model_len: int) -> None:
        self._fitting = Fitting(prompt_format, max_model_len)

    def division(self, claimed: Claimed) -> Division | None:
        """The parts that have to run before the job can; None for nearly every job. Raises PromptTooLong."""
        return self._fitting.division(claimed)

    def held_job(self, claimed: Claimed) -> HeldJob:
        """The job, ready to be held. Raises a BadRequest whose code the job fails with: its tokens are counted here."""
        held_at_s = time.monotonic()
        if claimed.body is None:
            raise InvalidField("The job's text was purged before it ran; submit it again.")
        fitted = self._fitting.fitted(claimed.body)
        wanted = claimed.body["sampling"]
        sampling = Sampling(
            max_tokens=fitted.max_tokens,
            temperature=wanted["temperature"],
            top_p=wanted["top_p"],
            stop=tuple(wanted["stop"]),
            seed=wanted["seed"],
            json_schema=wanted.get("json_schema"),
        )
        generation = Generation(
            request_id=claimed.job_id.hex,
            prompt_token_ids=tuple(fitted.token_ids),
            sampling=sampling,
            cache_salt=hashlib.sha256(f"lorry/{claimed.tenant_id}".encode()).hexdigest(),
            adapter=_adapter_ref(claimed),
        )
        return HeldJob(claimed, generation, held_at_s, overflow=fitted.overflow)


def _adapter_ref(claimed: Claimed) -> AdapterRef | None:
    adapter = claimed.adapter
    if adapter is None:
        return None
    if adapter.state != "ready":
        raise AdapterUnavailable(f"The adapter version is {adapter.state}; activate another version.")
    name = adapters.engine_name(claimed.tenant_id, adapter.name, adapter.version, adapter.digest)
    return AdapterRef(adapter.adapter_id, name, adapter.path)
