"""What the engine tests drive an engine with: fresh adapters (ids are never reused), swaps, generations."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from tests.tiny_model import encode, make_adapter
from workers.engine import VllmEngine
from workers.engine_fake import FakeEngine
from workers.generation import AdapterRef, EngineConfig, Generated, Generation, Sampling, Swap

MAX_LORAS, MAX_CPU_LORAS, CONTEXT = 2, 4, 512
PROMPT = "The customer reports that order 48213 arrived damaged."
_ids = itertools.count(1)


def tiny_config(model_dir: Path) -> EngineConfig:
    """float32, so that a mixed batch can be compared token for token."""
    return EngineConfig(
        model_path=str(model_dir),
        dtype="float32",
        max_model_len=CONTEXT,
        max_num_seqs=16,
        max_loras=MAX_LORAS,
        max_lora_rank=8,
        max_cpu_loras=MAX_CPU_LORAS,
        kv_cache_bytes=128 * 2**20,
    )


class Rig:
    """One running engine of either kind."""

    def __init__(self, engine: VllmEngine | FakeEngine, model_dir: Path, adapters_dir: Path) -> None:
        self.engine = engine
        self.model_dir = model_dir
        self.adapters_dir = adapters_dir

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout_s: float = 60.0) -> Any:
        """Run on the engine's loop and wait."""
        return self.engine._runner.call(coroutine, timeout_s)

    def adapter(self, targets: Iterable[str] = ("q_proj", "v_proj"), **options: Any) -> AdapterRef:
        """A new adapter that no engine has seen; its id is its seed."""
        int_id = next(_ids)
        folder = make_adapter(self.adapters_dir / str(int_id), seed=int_id, targets=targets, **options)
        return AdapterRef(int_id, f"acme/notes@{int_id}#0123456789abcdef", str(folder))

    def missing(self) -> AdapterRef:
        """An adapter whose folder is not there."""
        int_id = next(_ids)
        return AdapterRef(int_id, f"acme/gone@{int_id}#0123456789abcdef", str(self.adapters_dir / "nowhere" / "gone"))

    async def load(self, adapter: AdapterRef, keep: AdapterRef | None = None) -> Swap:
        """Swap in, evicting the least recently used slot but `keep` when all are taken."""
        slots = (await self.engine.residency()).slots
        victims = [int_id for int_id in slots if keep is None or int_id != keep.int_id]
        return await self.engine.swap_in(adapter, victims[0] if len(slots) >= MAX_LORAS else None)

    async def until_live(self, *adapters: AdapterRef, timeout_s: float = 10.0) -> None:
        """Wait until requests with all these adapters are in the engine."""
        wanted = {adapter.int_id for adapter in adapters}
        await _until(lambda live: wanted <= live, self.engine, timeout_s)

    async def until_gone(self, adapter: AdapterRef, timeout_s: float = 5.0) -> None:
        """Wait until no request with this adapter is in the engine."""
        await _until(lambda live: adapter.int_id not in live, self.engine, timeout_s)

    async def until_staged(self, adapter: AdapterRef, timeout_s: float = 5.0) -> None:
        """Wait until a staged adapter is in host memory."""
        deadline = time.monotonic() + timeout_s
        while not await self.engine.is_staged(adapter.int_id):
            if time.monotonic() > deadline:
                raise TimeoutError("the adapter was never read")
            await asyncio.sleep(0.002)

    def generation(
        self, adapter: AdapterRef | None = None, max_tokens: int = 16, prompt: str = PROMPT, **sampling: Any
    ) -> Generation:
        """A greedy request unless `sampling` says otherwise."""
        return Generation(
            request_id="job",
            prompt_token_ids=encode(self.model_dir, prompt),
            sampling=Sampling(max_tokens, **sampling),
            cache_salt="acme",
            adapter=adapter,
        )

    async def answer(self, adapter: AdapterRef | None = None, **options: Any) -> Generated:
        """Run one request to its end."""
        return await self.engine.generate(self.generation(adapter, **options))


async def _until(holds: Callable[[frozenset[int]], bool], engine: VllmEngine | FakeEngine, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        if holds(await engine.live_adapters()):
            return
        if time.monotonic() > deadline:
            raise TimeoutError("the engine's live adapters never became what the test waits for")
        await asyncio.sleep(0.002)
