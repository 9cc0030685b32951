"""Swaps: how few there are, that none happens inside a step, and what reading ahead saves those who run meanwhile.

    python -m benchmarks.swaps --json FILE [--quick]

`activations_over_optimum` and `farthest_over_lru`: the product's choice of victims replayed over named traces with
pins, against Belady's with the whole future and against the least recently used; the worst trace counts.
`activations_per_adapter`: Lorry end to end, 16 adapters in 2 slots. `step_time_loads`: loads that vLLM made inside an
engine step, while half of the jobs were cancelled in storms. `stall_hidden_share`: of the longest pause that bringing
in an adapter of rank 256 makes in a running stream, its files not in the page cache, the share that reading ahead
removes.
"""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from sqlalchemy import text

from benchmarks import figures, model, options, replay
from benchmarks.batching import NARROW, RANK
from benchmarks.children import Child, until
from benchmarks.ratios import paired
from benchmarks.stack import Finished, Stack, engine_config, tenant_of
from benchmarks.workload import requests
from registry import transitions, wake
from registry.deployments import EngineSettings

ADAPTERS = 16
BASE = "swaps"
BIG_RANK = 256
BIG = EngineSettings(max_model_len=512, max_loras=2, max_lora_rank=BIG_RANK, max_cpu_loras=4)
STORMS = 8

_BEAT = text("""
SELECT (residency ->> 'step_time_loads')::integer AS loads FROM workers
WHERE state = 'ready' AND held = 0 AND beat_at > to_timestamp(:since_s)
""")


def replayed(jobs: int) -> dict[str, dict[str, int]]:
    """Activations of every policy on every trace."""
    return {
        trace.name: {policy: replay.activations(trace, policy) for policy in replay.POLICIES}
        for trace in replay.traces(jobs)
    }


def cancel_in_storms(stack: Stack, jobs: int) -> None:
    """Submit, and cancel every other job in storms while they run."""
    wanted = requests(jobs, ADAPTERS, "uniform", 99)
    ids, _ = stack.submit(BASE, wanted)
    victims = [(tenant_of(BASE, one.adapter or 0), job_id) for one, job_id in zip(wanted, ids, strict=True)][::2]
    Random(1).shuffle(victims)
    pause = threading.Event()
    for number in range(STORMS):
        pause.wait(0.4)
        with stack.db.transaction() as session:
            for tenant, job_id in victims[number::STORMS]:
                transitions.cancel(session, tenant, job_id)
            session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": wake.CANCELLED})
    stack.wait(ids)


def end_to_end(jobs: int) -> tuple[Finished, int]:
    """A run without cancels, then storms; loads inside steps over both, as the worker reports them."""
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder, Stack(Path(folder)) as stack:
        stack.base(BASE, model.random_model(), NARROW)
        stack.adapters(BASE, ADAPTERS, RANK)
        stack.worker(BASE)
        stack.ready(BASE)
        finished = stack.run(BASE, requests(jobs, ADAPTERS, "uniform", 0))
        cancel_in_storms(stack, jobs)
        since_s = stack.wake()

        def report() -> list[int]:
            with stack.db.transaction() as session:
                return list(session.scalars(_BEAT, {"since_s": since_s}))

        return finished, until(report, within_s=30)[0]


def stalls(pairs: int) -> list[dict[str, Any]]:
    """Longest gaps of a running stream, with and without reading ahead, in turns."""
    path = model.random_model()
    running = [1, "bench/running", str(model.adapter(path, model.NAME, 16, 0))]
    found = []
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder:
        child = Child(["benchmarks.arms.stall", engine_config(path, BIG, 0.25)], Path(folder) / "stall.log")
        try:
            child.hear()
            for number in range(pairs * 2):
                incoming = [10 + number, f"bench/big-{number}", str(model.adapter(path, model.NAME, BIG_RANK, 0))]
                ahead = bool(number % 2)
                gaps = child.ask(running=running, incoming=incoming, ahead=ahead)
                found.append({"ahead": ahead, **gaps})
                print(f"ahead {ahead!s:5} usual {gaps['usual_s']:.4f} s longest {gaps['longest_s']:.4f} s", flush=True)
        finally:
            child.close()
    return found


def hidden_share(found: list[dict[str, Any]]) -> float:
    """Median over pairs of the share of the extra gap that reading ahead removed."""
    plain, hidden = (
        [one["longest_s"] - one["usual_s"] for one in found if one["ahead"] is ahead] for ahead in (False, True)
    )
    return 1 - median(paired(hidden, plain))


def main(argv: list[str] | None = None) -> None:
    """All three questions."""
    given = options.parse("swaps", argv)
    counts = replayed(1_000 if given.quick else 10_000)
    finished, loads = end_to_end(96 if given.quick else 192)
    found = stalls(given.pairs)
    rows = [
        [name, *(one[policy] for policy in replay.POLICIES), f"{one['farthest'] / one['optimum']:.3f}"]
        for name, one in counts.items()
    ]
    table = {
        "title": f"Activations by policy ({replay.HELD} uses in sight)",
        "columns": ["trace", *replay.POLICIES, "farthest over optimum"],
        "rows": rows,
    }
    figures.write(
        given.json,
        {
            "activations_over_optimum": max(one["farthest"] / one["optimum"] for one in counts.values()),
            "farthest_over_lru": max(one["farthest"] / one["lru"] for one in counts.values()),
            "activations_per_adapter": finished.activations / ADAPTERS,
            "step_time_loads": loads,
            "stall_hidden_share": hidden_share(found),
        },
        {"tables": [table], "charts": [chart(counts)], "stalls": found},
    )


def chart(counts: dict[str, dict[str, int]]) -> dict[str, Any]:
    """How far each policy is from the optimum."""
    names = list(counts)
    series = {
        policy: {"x": names, "y": [counts[name][policy] / counts[name]["optimum"] for name in names]}
        for policy in replay.POLICIES[:2]
    }
    return {"kind": "lines", "title": "Activations over the optimum's", "unit": "ratio", "series": series}


if __name__ == "__main__":
    main()
