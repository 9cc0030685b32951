"""Many tenants' adapters in few slots: Lorry beside what people would run instead, on the same jobs.

    python -m benchmarks.batching --json FILE [--quick]

Arms: (a) `one` job at a time; (b) `micro` batches of one tenant; (c) `celery-8`, `-32`, `-128`: threads that feed
AsyncLLM in order of arrival; (d) `script`: everything given to vLLM at once; (e) `lorry`, whole, from the submission's
commit to the last settle, with as many held jobs as by default, 32 or 128; (f) `sorted`: everything at once, sorted.
All engines have the same arguments, process layout and corrected CPU operators, start once and are asked in turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import figures, model, options
from benchmarks.contest import Arms, Outcome
from benchmarks.ratios import median_ratio, turns
from benchmarks.stack import Stack
from benchmarks.workload import few, requests
from registry.deployments import EngineSettings

RANK = 16
NARROW = EngineSettings(max_model_len=512, max_loras=2, max_lora_rank=RANK, max_cpu_loras=64)
WIDE = EngineSettings(max_model_len=512, max_loras=4, max_lora_rank=RANK, max_cpu_loras=64)
EQUAL_HELD = (32, 128)
ALL = ("one", "micro", "celery-8", "celery-32", "celery-128", "script", "sorted", "lorry", "lorry-32", "lorry-128")
MAIN = ("celery-8", "script", "sorted", "lorry")
BOUNDS = ("script", "sorted", "lorry")
Rates = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the comparison: so many jobs of so many adapters, arriving in a pattern."""

    adapters: int
    slots: int
    pattern: str
    jobs: int
    arms: tuple[str, ...]

    @property
    def name(self) -> str:
        """As it is printed."""
        return f"{self.adapters} adapters / {self.slots} slots, {self.pattern}"


def race(arms: Arms, case: Case, pairs: int) -> dict[str, list[Outcome]]:
    """All arms in turns; every round has new prompts, the same for every arm."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in case.arms}
    print(f"{case.name}, {case.jobs} jobs", flush=True)
    for number, name in turns(case.arms, pairs):
        wanted = requests(case.jobs, case.adapters, case.pattern, number)
        outcome = arms.run(name, few(wanted) if name == "one" else wanted)
        outcomes[name].append(outcome)
        held, live = arms.held_and_live(name)
        print(
            f"  round {number} {name:11} held {held!s:>4} live {live:3} {outcome.seconds:7.2f} s "
            f"{outcome.rate:7.1f} tok/s, activations {outcome.activations}",
            flush=True,
        )
    return outcomes


def warm_up(arms: Arms, case: Case) -> None:
    """Every adapter once in every arm: afterwards all have them in host memory."""
    for name in case.arms:
        arms.run(name, requests(case.adapters * 2, case.adapters, "uniform", -1, tokens=(2, 4)))


def rates(outcomes: dict[str, list[Outcome]]) -> Rates:
    """Tokens a second by arm."""
    return {name: [outcome.rate for outcome in runs] for name, runs in outcomes.items()}


def taken_figures(narrow: Rates) -> dict[str, float]:
    """The figures, from 16 adapters in 2 slots with uniform arrivals."""
    equal = [median_ratio(narrow, f"lorry-{held}", f"celery-{held}") for held in EQUAL_HELD]
    return {
        "lorry_over_celery_c8": median_ratio(narrow, "lorry", "celery-8"),
        "lorry_over_script": median_ratio(narrow, "lorry", "script"),
        "lorry_over_bound": median_ratio(narrow, "lorry", "sorted"),
        "equal_held_ratio": min(equal),
        "lorry_over_one": median_ratio(narrow, "lorry", "one"),
        "lorry_over_micro": median_ratio(narrow, "lorry", "micro"),
    }


def table(case: Case, arms: Arms, outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    """One case as a table of the page."""
    speeds = rates(outcomes)
    rows = []
    for name, runs in outcomes.items():
        held, live = arms.held_and_live(name)
        counted = [run.activations for run in runs if run.activations is not None]
        swaps = f"{median(counted):.0f}" if counted else "-"
        ratio = f"{median_ratio(speeds, 'lorry', name):.2f}"
        rows.append([name, held, live, f"{median(speeds[name]):.0f}", swaps, ratio])
    columns = ["arm", "held", "live", "tok/s (median)", "activations", "Lorry over it"]
    return {"title": f"{case.name}, {case.jobs} jobs", "columns": columns, "rows": rows}


def chart(case: Case, outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    """One case as a chart of the page."""
    speeds = rates(outcomes)
    values = [median(speeds[name]) for name in outcomes]
    return {"kind": "bars", "title": case.name, "unit": "tokens/s", "labels": list(outcomes), "values": values}


def cases(quick: bool) -> list[tuple[EngineSettings, tuple[str, ...], list[Case]]]:
    """What runs, grouped by the engines that can stay alive together."""
    jobs, fewer = (48, 32) if quick else (192, 96)
    others = [Case(16, 2, pattern, fewer, BOUNDS) for pattern in ("zipf", "bursty")]
    narrow = [Case(16, 2, "uniform", jobs, ALL), *others]
    return [(NARROW, ALL, narrow), (WIDE, MAIN, [Case(64, 4, "uniform", fewer, MAIN)])]


def run_group(
    folder: Path, engine: EngineSettings, names: Sequence[str], group: Sequence[Case], pairs: int
) -> list[tuple[Case, dict[str, list[Outcome]], dict[str, Any]]]:
    """All cases of one set of engines."""
    path = model.random_model()
    with Stack(folder) as stack:
        arms = Arms(stack, f"b{engine.max_loras}", path, engine, names, adapters=group[0].adapters, rank=RANK)
        warm_up(arms, group[0])
        results = []
        for case in group:
            outcomes = race(arms, case, pairs)
            results.append((case, outcomes, table(case, arms, outcomes)))
        return results


def main(argv: list[str] | None = None) -> None:
    """Run all cases and write the result."""
    given = options.parse("batching", argv)
    results = []
    for engine, names, group in cases(given.quick):
        with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder:
            results += run_group(Path(folder), engine, names, group, given.pairs)
    figures.write(
        given.json,
        taken_figures(rates(results[0][1])),
        {
            "tables": [drawn for _, _, drawn in results],
            "charts": [chart(case, outcomes) for case, outcomes, _ in results],
            "runs": {
                case.name: {name: [asdict(run) for run in runs] for name, runs in outcomes.items()}
                for case, outcomes, _ in results
            },
        },
    )


if __name__ == "__main__":
    main()
