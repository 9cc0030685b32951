"""From a claimed job to a generation, and why a job fails before it is held."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry.base_models import DEFAULT_TEMPLATE
from registry.errors import AdapterUnavailable, InvalidField, PromptTooLong
from registry.prompts import PromptFormat
from registry.transitions import Claimed
from tests.workers.held_jobs import held_job
from workers.generation import AdapterRef, Sampling
from workers.preparation import Preparation


@pytest.fixture
def preparation(tiny_base_dir: Path) -> Preparation:
    return Preparation(PromptFormat(tiny_base_dir, DEFAULT_TEMPLATE), max_model_len=64)


def claimed(adapter: int = 0, tenant: str = "acme", **body: Any) -> Claimed:
    sampling = {"max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "stop": ["\n"], "seed": 3}
    made = held_job(adapter, path="/files", digest="ab" * 32).claimed
    return replace(made, tenant_id=tenant, body={"prompt": "hey", "sampling": sampling, **body})


def test_a_generation_has_the_jobs_tokens_and_sampling(preparation: Preparation) -> None:
    job = claimed()
    generation = preparation.held_job(job).generation
    assert len(generation.prompt_token_ids) == 3
    assert generation.sampling == Sampling(7, 0.5, 0.9, ("\n",), 3)
    assert (generation.request_id, generation.adapter) == (job.job_id.hex, None)


def test_an_adapter_is_named_by_tenant_version_and_digest(preparation: Preparation) -> None:
    generation = preparation.held_job(claimed(5)).generation
    assert generation.adapter == AdapterRef(5, f"acme/a5@1#{'ab' * 8}", "/files")


def test_tenants_never_share_a_prefix(preparation: Preparation) -> None:
    salts = [preparation.held_job(claimed(tenant=name)).generation.cache_salt for name in ("acme", "globex", "acme")]
    assert salts[0] == salts[2] != salts[1]
    assert "acme" not in salts[0]


def test_a_prompt_that_does_not_fit_is_refused_with_both_counts(preparation: Preparation) -> None:
    assert preparation.held_job(claimed(prompt="x" * 57))
    with pytest.raises(PromptTooLong, match=r"58 tokens.* 7,"):
        preparation.held_job(claimed(prompt="x" * 58))


def test_a_default_that_nobody_held_against_the_prompt_is_lowered_to_what_it_leaves(preparation: Preparation) -> None:
    sampling = {"max_tokens": 60, "temperature": 0.0, "top_p": 1.0, "stop": [], "seed": None, "may_lower": True}
    budgets = [
        preparation.held_job(claimed(prompt="x" * length, sampling=sampling)).generation.sampling.max_tokens
        for length in (3, 4, 5, 63)
    ]
    assert budgets == [60, 60, 59, 1]
    with pytest.raises(PromptTooLong):
        preparation.held_job(claimed(prompt="x" * 64, sampling=sampling))


def test_a_purged_text_and_a_retired_adapter_are_refused(preparation: Preparation) -> None:
    with pytest.raises(InvalidField, match="purged"):
        preparation.held_job(replace(claimed(), body=None))
    job = claimed(5)
    assert job.adapter is not None
    with pytest.raises(AdapterUnavailable, match="retired"):
        preparation.held_job(replace(job, adapter=replace(job.adapter, state="retired")))
