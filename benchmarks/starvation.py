"""Tenants that keep every slot busy, and others that want in: the longest wait, by who decides the order.

    python -m benchmarks.starvation --json FILE [--quick]

Two slots. Requests for two adapters keep arriving for the whole time of a run, so that neither slot is ever without
work; probes for four other adapters come a little after the start. `script` gives vLLM each request as it arrives, and
vLLM keeps serving what is in its slots. Lorry promises the first job of each waiting adapter
B = ceil(A/S) x (adapter_max_wait_s + longest request + load), A adapters waiting for S slots; the request and the load
are measured in the same run. `worst_wait_over_bound` is the worst probe's wait, from submission to admission, over B.
"""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import figures, model, options
from benchmarks.contest import Arms
from benchmarks.ratios import wait_bound_s
from benchmarks.stack import Stack, Times
from benchmarks.workload import Request, prompt
from registry.deployments import EngineSettings

SLOTS, PROBES = 2, 4
ENGINE = EngineSettings(max_model_len=1024, max_loras=SLOTS, max_lora_rank=16, max_cpu_loras=16)
STREAM_TOKENS, PROBE_TOKENS = 160, 8
EVERY_S = 1.0
PROBED_AFTER_S = 4.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request and when it comes, seconds after the start."""

    at_s: float
    request: Request

    @property
    def is_probe(self) -> bool:
        """Whether its adapter has no slot at first."""
        return self.request.adapter is not None and self.request.adapter >= SLOTS


def arrivals(stream_s: float, seed: int = 0) -> list[Arrival]:
    """Both streams for `stream_s`, and one probe for each of the other adapters, by time."""
    random = Random(seed)
    streams = [
        Arrival(tick * EVERY_S, Request(adapter, prompt(random, 12), STREAM_TOKENS))
        for tick in range(int(stream_s / EVERY_S))
        for adapter in range(SLOTS)
    ]
    probes = [
        Arrival(PROBED_AFTER_S + number * 0.05, Request(SLOTS + number, prompt(random, 12), PROBE_TOKENS))
        for number in range(PROBES)
    ]
    return sorted(streams + probes, key=lambda arrival: arrival.at_s)


def script_waits(arms: Arms, coming: list[Arrival]) -> list[float]:
    """Each probe's wait in vLLM's queue."""
    answer = arms.script("all", [arrival.request for arrival in coming], at_s=[arrival.at_s for arrival in coming])
    return [waited for arrival, waited in zip(coming, answer["waited_s"], strict=True) if arrival.is_probe]


def lorry_times(stack: Stack, base: str, coming: list[Arrival]) -> list[Times]:
    """Submit each request when it comes; every job's instants."""
    begun, ids = time.monotonic(), []
    pause = threading.Event()
    for arrival in coming:
        pause.wait(max(0.0, begun + arrival.at_s - time.monotonic()))
        ids += stack.submit(base, [arrival.request])[0]
    stack.wait(ids)
    return stack.times(ids)


def bound_s(times: list[Times], adapter_max_wait_s: float) -> float:
    """B, with the longest request and the longest load that this run had."""
    longest = max((one.finished - one.started).total_seconds() for one in times if one.started and one.finished)
    swaps = [one.timing["swap"] for one in times if one.timing and one.timing["swap"]]
    loads = [swap["fetch_ms"] + swap["load_ms"] + swap["activate_ms"] for swap in swaps if swap["state"] != "hot"]
    return wait_bound_s(PROBES, SLOTS, adapter_max_wait_s, longest, max(loads, default=0.0) / 1000)


def waits(coming: list[Arrival], times: list[Times]) -> list[float]:
    """Each probe's wait from submission to admission."""
    pairs = zip(coming, times, strict=True)
    return [(one.started - one.created).total_seconds() for arrival, one in pairs if arrival.is_probe and one.started]


def main(argv: list[str] | None = None) -> None:
    """One run of each arm: a worst case needs no median."""
    given = options.parse("starvation", argv)
    coming = arrivals(14.0 if given.quick else 32.0)
    stream_s = coming[-1].at_s
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder, Stack(Path(folder)) as stack:
        arms = Arms(stack, "s", model.random_model(), ENGINE, ("script", "lorry"), adapters=SLOTS + PROBES, rank=16)
        for name in ("script", "lorry"):
            warm = [Request(number, f"warm {number}", 2) for number in range(SLOTS + PROBES)]
            arms.run(name, warm)
            print(f"{name}: held, live {arms.held_and_live(name)}", flush=True)
        script = script_waits(arms, coming)
        times = lorry_times(stack, arms.base("lorry"), coming)
        bound = bound_s(times, stack.settings.adapter_max_wait_s)
    lorry = waits(coming, times)
    figures.write(
        given.json,
        {
            "worst_wait_over_bound": max(lorry) / bound,
            "lorry_worst_wait_s": max(lorry),
            "script_worst_wait_s": max(script),
        },
        {"tables": [table(script, lorry, bound, stream_s)], "charts": [chart(script, lorry, bound)]},
    )


def table(script: list[float], lorry: list[float], bound: float, stream_s: float) -> dict[str, Any]:
    """Waits by arm."""
    left_s = stream_s - PROBED_AFTER_S - PROBES * 0.05
    worst = f">= {left_s:.0f} (until the streams ended)" if max(script) >= left_s else f"{max(script):.2f}"
    return {
        "title": f"Probes' waits beside streams of {stream_s:.0f} s on both slots",
        "columns": ["arm", "worst wait, s", "promised, s"],
        "rows": [["vLLM's own order", worst, "-"], ["Lorry", f"{max(lorry):.2f}", f"{bound:.2f}"]],
    }


def chart(script: list[float], lorry: list[float], bound: float) -> dict[str, Any]:
    """The worst waits beside the promise."""
    labels, values = ["vLLM's own order", "Lorry", "Lorry's promise"], [max(script), max(lorry), bound]
    return {"kind": "bars", "title": "Worst wait for a slot", "unit": "s", "labels": labels, "values": values}


if __name__ == "__main__":
    main()
