"""Held jobs made by hand, for tests of what comes after the claim."""

from __future__ import annotations

import uuid
from typing import Any

from registry.transitions import Claimed, ClaimedAdapter
from workers.generation import AdapterRef, Generation, Sampling
from workers.held import HeldJob
from workers.policy import BASE


def held_job(
    adapter: int = BASE,
    turn: int = 1,
    *,
    held_at_s: float = 0.0,
    crashes: int = 0,
    attempts: int = 0,
    prompt: str = "word",
    path: str = "",
    digest: str = "",
    max_tokens: int = 16,
) -> HeldJob:
    """A claimed job of tenant `acme` at fence 1. `path` and `digest` are its adapter's; a prompt token is a byte."""
    name = f"a{adapter}"
    of_adapter = None if adapter == BASE else ClaimedAdapter(adapter, name, 1, path, digest, "ready")
    ref = None if adapter == BASE else AdapterRef(adapter, f"acme/{name}@1#{'0' * 16}", path)
    body: dict[str, Any] = {"prompt": prompt}
    claimed = Claimed(uuid.uuid4(), 1, "acme", turn, crashes, attempts, 5.0, body, of_adapter)
    generation = Generation(claimed.job_id.hex, tuple(prompt.encode()), Sampling(max_tokens), "salt", ref)
    return HeldJob(claimed, generation, held_at_s)
