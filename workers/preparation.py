"""From a claimed job to what the engine takes: prompt tokens, sampling, adapter, cache salt.

Runs in the task's thread.
"""

from __future__ import annotations

import hashlib
import time

from registry import adapters, prompts
from registry.errors import AdapterUnavailable, InvalidField
from registry.prompts import PromptFormat
from registry.transitions import Claimed
from workers.generation import AdapterRef, Generation, Sampling
from workers.held import HeldJob


class Preparation:
    """One deployment's way of turning bodies into generations."""

    def __init__(self, prompt_format: PromptFormat, max_model_len: int) -> None:
        self._format = prompt_format
        self._max_model_len = max_model_len

    def held_job(self, claimed: Claimed) -> HeldJob:
        """The job, ready to be held. Raises a BadRequest whose code the job fails with: its tokens are counted here."""
        held_at_s = time.monotonic()
        if claimed.body is None:
            raise InvalidField("The job's text was purged before it ran; submit it again.")
        token_ids = self._format.token_ids(claimed.body)
        wanted = claimed.body["sampling"]
        max_tokens = wanted["max_tokens"]
        if wanted.get("may_lower"):
            max_tokens = prompts.lowered(len(token_ids), max_tokens, self._max_model_len)
        prompts.check_counts(len(token_ids), max_tokens, self._max_model_len)
        sampling = Sampling(
            max_tokens=max_tokens,
            temperature=wanted["temperature"],
            top_p=wanted["top_p"],
            stop=tuple(wanted["stop"]),
            seed=wanted["seed"],
        )
        generation = Generation(
            request_id=claimed.job_id.hex,
            prompt_token_ids=tuple(token_ids),
            sampling=sampling,
            cache_salt=hashlib.sha256(f"lorry/{claimed.tenant_id}".encode()).hexdigest(),
            adapter=_adapter_ref(claimed),
        )
        return HeldJob(claimed, generation, held_at_s)


def _adapter_ref(claimed: Claimed) -> AdapterRef | None:
    adapter = claimed.adapter
    if adapter is None:
        return None
    if adapter.state != "ready":
        raise AdapterUnavailable(f"The adapter version is {adapter.state}; activate another version.")
    name = adapters.engine_name(claimed.tenant_id, adapter.name, adapter.version, adapter.digest)
    return AdapterRef(adapter.adapter_id, name, adapter.path)
