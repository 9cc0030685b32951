"""How long bringing in a big adapter stops a running stream: `python -m benchmarks.arms.stall CONFIG`.

Asked with a running adapter, an incoming one and whether to read ahead, it streams on the first, drops the second's
files from the page cache, brings it in, and answers with the gaps between the stream's tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.arms.bare import BareEngine, Prompt
from benchmarks.arms.lines import Lines
from workers.generation import AdapterRef, EngineConfig

TOKENS, QUIET = 120, 40
POLL_S = 0.002


async def gaps(engine: BareEngine, running: AdapterRef, incoming: AdapterRef, *, ahead: bool) -> dict[str, float]:
    """Seconds: the usual gap between tokens, and the longest from the beginning of the reading to the stream's end."""
    if running.int_id not in (await engine.residency()).slots:
        await engine.swap_in(running, None)
    times: list[float] = []
    stream = asyncio.ensure_future(engine.stream(Prompt("The order is late.", TOKENS, running), times))
    while len(times) < QUIET:  # noqa: ASYNC110 - vLLM has no event for it
        await asyncio.sleep(POLL_S)
    drop_from_page_cache(Path(incoming.path))
    from_token = len(times)
    if ahead:
        await engine.stage(incoming, None)
        while not await engine.is_staged(incoming.int_id):  # noqa: ASYNC110 - nor for this
            await asyncio.sleep(POLL_S)
    await engine.swap_in(incoming, None)
    await stream
    await engine.drop(incoming)
    between = [later - earlier for earlier, later in pairwise(times)]
    return {"usual_s": median(between[5:QUIET]), "longest_s": max(between[from_token - 1 :])}


def drop_from_page_cache(folder: Path) -> None:
    """The next read comes from the disk, where the system allows it."""
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def main() -> None:
    """Serve until stdin ends."""
    lines = Lines()
    engine = BareEngine(EngineConfig(**json.loads(sys.argv[1])))
    engine.start()
    lines.say("ready")
    for command in lines.commands():
        refs: list[Any] = [AdapterRef(*command[name]) for name in ("running", "incoming")]
        work = gaps(engine, *refs, ahead=command["ahead"])
        lines.say(asyncio.run_coroutine_threadsafe(work, engine.loop).result())
    engine.close()


if __name__ == "__main__":
    main()
