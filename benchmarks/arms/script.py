"""A script around AsyncLLM: `python -m benchmarks.arms.script CONFIG`, one engine, asked for one order at a time.

Orders: `one` request after another (the plain Celery recipe), `micro` batches of one tenant with a swap between them,
`all` at once, `sorted` by adapter and then all at once, `timed` arrivals.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.arms.bare import BareEngine, Done, Prompt
from benchmarks.arms.lines import Lines
from workers.generation import EngineConfig

MICRO = 8


async def run(engine: BareEngine, order: str, prompts: Sequence[Prompt], at_s: Sequence[float] = ()) -> dict[str, Any]:
    """All prompts in the given order; seconds, tokens, loads inside steps, and each request's wait in vLLM's queue."""
    loads = await engine.loads_in_steps()
    begun = time.perf_counter()
    done = await _ORDERS[order](engine, prompts) if not at_s else await _timed(engine, prompts, at_s)
    seconds = time.perf_counter() - begun
    return {
        "seconds": seconds,
        "tokens": sum(one.tokens for one in done),
        "activations": await engine.loads_in_steps() - loads,
        "waited_s": [one.waited_s for one in done],
        "took_s": [one.took_s for one in done],
    }


async def _one(engine: BareEngine, prompts: Sequence[Prompt]) -> list[Done]:
    return [await engine.complete(prompt) for prompt in prompts]


async def _micro(engine: BareEngine, prompts: Sequence[Prompt]) -> list[Done]:
    """Up to `MICRO` waiting requests of one tenant at a time, tenants in order of arrival."""
    queues: dict[int | None, list[Prompt]] = {}
    for prompt in prompts:
        queues.setdefault(prompt.adapter.int_id if prompt.adapter else None, []).append(prompt)
    done: list[Done] = []
    while queues:
        for tenant, queue in list(queues.items()):
            batch, queues[tenant] = queue[:MICRO], queue[MICRO:]
            done += await _all(engine, batch)
            if not queues[tenant]:
                del queues[tenant]
    return done


async def _all(engine: BareEngine, prompts: Sequence[Prompt]) -> list[Done]:
    return await asyncio.gather(*(engine.complete(prompt) for prompt in prompts))


async def _sorted(engine: BareEngine, prompts: Sequence[Prompt]) -> list[Done]:
    return await _all(engine, sorted(prompts, key=lambda prompt: prompt.adapter.int_id if prompt.adapter else 0))


async def _timed(engine: BareEngine, prompts: Sequence[Prompt], at_s: Sequence[float]) -> list[Done]:
    async def later(prompt: Prompt, delay_s: float) -> Done:
        await asyncio.sleep(delay_s)
        return await engine.complete(prompt)

    return await asyncio.gather(*map(later, prompts, at_s))


_ORDERS = {"one": _one, "micro": _micro, "all": _all, "sorted": _sorted}


def main() -> None:
    """Serve until stdin ends."""
    lines = Lines()
    engine = BareEngine(EngineConfig(**json.loads(sys.argv[1])))
    engine.start()
    lines.say("ready")
    for command in lines.commands():
        prompts = [Prompt.from_json(fields) for fields in command["prompts"]]
        work = run(engine, command["order"], prompts, command.get("at_s", ()))
        lines.say(asyncio.run_coroutine_threadsafe(work, engine.loop).result())
    engine.close()


if __name__ == "__main__":
    main()
