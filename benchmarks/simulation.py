"""Lorry at sizes that no machine here has: 1 to 64 workers, 100 to 10,000 adapters, up to a million jobs.

    python -m benchmarks.simulation --json FILE [--quick]

The product's own order, policy and books run in virtual time over a cost model, which is calibrated on a measured run:
`batching.json` beside FILE if there is one, else a Lorry with the engine without a model. `simulation_error` is the
worst relative error of the simulated time on arrival patterns that the model was not fitted to. Every point is two
runs: all jobs at once (throughput, swaps, Jain's index of tokens served by half time), and arrivals at half of that
throughput (p99 of the wait from submission to the engine). Figures with `_1m` are of the largest point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import calibration, figures, options
from benchmarks.calibration import Calibration
from benchmarks.ratios import percentile
from benchmarks.simulated_worker import Job
from benchmarks.simulator import Result, Simulation
from registry.sizing import CostModel

SLOTS = 8
OUTPUT_TOKENS = (16, 112)
PROMPT_TOKENS = 64
OPEN_LOAD = 0.5
MOST_OPEN_JOBS = 30_000
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Point:
    """One size."""

    workers: int
    adapters: int
    jobs: int


@dataclass(frozen=True, slots=True)
class Found:
    """What a point came to. `computed_s`: processor time of its two runs."""

    point: Point
    jobs_per_s: float
    swaps_per_job: float
    jain: float
    p99_wait_s: float
    open_swaps_per_job: float
    computed_s: float


def points(quick: bool) -> list[Point]:
    """The largest first: it takes longest."""
    if quick:
        return [Point(workers, adapters, 800 * workers) for adapters in (100, 1_000) for workers in (8, 1)]
    largest = Point(64, 100, 1_000_000)
    grid = [
        Point(workers, adapters, max(8_000, 1_000 * workers))
        for adapters in (10_000, 1_000, 100)
        for workers in (64, 16, 4, 1)
    ]
    return [largest, *(one for one in grid if (one.workers, one.adapters) != (64, 100))]


def work(point: Point, jobs: int, rate: float | None) -> list[Job]:
    """Jobs of all adapters alike, at once or at `rate` a second."""
    random, at_s, made = Random(f"{point}/{rate is None}"), 0.0, []
    for seq in range(jobs):
        at_s += random.expovariate(rate) if rate else 0.0
        adapter = 1 + random.randrange(point.adapters)
        made.append(Job(seq, adapter, at_s, random.randint(*OUTPUT_TOKENS), PROMPT_TOKENS))
    return made


def measure(cost: CostModel, point: Point) -> Found:
    """Both runs of a point."""
    begun_s = time.process_time()
    closed = _run(cost, point, point.jobs, None)
    rate = closed.jobs / closed.seconds
    opened = _run(cost, point, min(point.jobs, MOST_OPEN_JOBS), rate * OPEN_LOAD)
    return Found(
        point,
        rate,
        closed.swaps / closed.jobs,
        closed.fairness,
        percentile(opened.waits_s, 0.99),
        opened.swaps / opened.jobs,
        time.process_time() - begun_s,
    )


def _run(cost: CostModel, point: Point, jobs: int, rate: float | None) -> Result:
    return Simulation(cost, calibration.rules(SLOTS), point.workers, work(point, jobs, rate)).run()


def sweep(cost: CostModel, wanted: Sequence[Point]) -> list[Found]:
    """All points, in two processes."""
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        found = []
        for one in pool.map(measure, [cost] * len(wanted), wanted):
            found.append(one)
            print(
                f"{one.point.workers:3} workers {one.point.adapters:6} adapters {one.point.jobs:8} jobs: "
                f"{one.jobs_per_s:7.1f} jobs/s, {one.swaps_per_job:.3f} swaps a job, jain {one.jain:.4f}, "
                f"p99 wait {one.p99_wait_s:.2f} s (computed in {one.computed_s:.1f} s)",
                flush=True,
            )
        return found


def chart(
    title: str, unit: str, found: Sequence[Found], value: Callable[[Found], float], **more: str
) -> dict[str, Any]:
    """One quantity over the number of workers, a line for each number of adapters."""
    series = {}
    for adapters in sorted({one.point.adapters for one in found}):
        line = sorted((one for one in found if one.point.adapters == adapters), key=lambda one: one.point.workers)
        series[f"{adapters} adapters"] = {"x": [one.point.workers for one in line], "y": [value(one) for one in line]}
    return {
        "kind": "lines",
        "title": title,
        "unit": unit,
        "x_label": "workers",
        "x_scale": "log",
        "series": series,
        **more,
    }


def charts(found: Sequence[Found]) -> list[dict[str, Any]]:
    """Throughput, swaps, waits, fairness."""
    return [
        chart("Simulated throughput", "jobs/s", found, lambda one: one.jobs_per_s, y_scale="log"),
        chart("Simulated swaps", "swaps a job", found, lambda one: one.swaps_per_job),
        chart("Simulated p99 wait at half load", "s", found, lambda one: one.p99_wait_s, y_scale="log"),
        chart("Simulated fairness", "Jain's index", found, lambda one: one.jain),
    ]


def table(found: Sequence[Found]) -> dict[str, Any]:
    """All points."""
    rows = [
        [
            one.point.workers,
            one.point.adapters,
            one.point.jobs,
            f"{one.jobs_per_s:.1f}",
            f"{one.swaps_per_job:.3f}",
            f"{one.jain:.4f}",
            f"{one.p99_wait_s:.2f}",
            f"{one.open_swaps_per_job:.3f}",
        ]
        for one in sorted(found, key=lambda one: (one.point.adapters, one.point.workers))
    ]
    columns = ["workers", "adapters", "jobs", "jobs/s", "swaps a job", "Jain", "p99 wait, s", "swaps a job, half load"]
    return {"title": f"Sizes, {SLOTS} slots a worker", "columns": columns, "rows": rows}


def calibrated(folder: Path, *, quick: bool) -> Calibration:
    """On the best measured run there is."""
    result = folder / "batching.json"
    if result.exists():
        return calibration.from_batching(result)
    return calibration.from_fake_engine(jobs=96 if quick else 384, rounds=1 if quick else 3)


def main(argv: list[str] | None = None) -> None:
    """Calibrate, simulate, write."""
    given = options.parse("simulation", argv)
    fitted = calibrated(given.json.parent, quick=given.quick)
    print(f"calibrated on {fitted.source}: {fitted.cost}", flush=True)
    for name, error in fitted.errors.items():
        print(f"  {name}: simulated time {error:+.1%}", flush=True)
    found = sweep(fitted.cost, points(given.quick))
    largest = max(found, key=lambda one: one.point.jobs)
    figures.write(
        given.json,
        {
            "simulation_error": fitted.worst_error,
            "simulated_jobs_per_s_1m": largest.jobs_per_s,
            "simulated_swaps_per_job_1m": largest.swaps_per_job,
            "simulated_p99_wait_s_1m": largest.p99_wait_s,
            "simulated_jain_1m": largest.jain,
        },
        {
            "cost": asdict(fitted.cost),
            "calibrated_on": fitted.source,
            "errors": fitted.errors,
            "tables": [table(found), error_table(fitted)],
            "charts": charts(found),
        },
    )


def error_table(fitted: Calibration) -> dict[str, Any]:
    """How far the simulated time is from the measured one."""
    rows = [[name, f"{error:+.1%}"] for name, error in fitted.errors.items()]
    title = f"Simulated against measured time ({fitted.source}; fitted to the first)"
    return {"title": title, "columns": ["case", "error"], "rows": rows}


if __name__ == "__main__":
    main()
