"""What Lorry itself costs: end to end against bare AsyncLLM, every adapter in a slot, so that nothing is won by order.

    python -m benchmarks.overhead --json FILE [--quick]

Both arms have the same engine arguments and process layout; the script gives vLLM all prompts as text at once. Lorry's
time runs from the submission's commit to the last settle. Ratios are tokens a second, Lorry's over the script's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import figures, model, options
from benchmarks.contest import Arms, Outcome
from benchmarks.ratios import median_ratio, turns
from benchmarks.stack import Stack
from benchmarks.workload import requests
from demo.base_model import ensure_base
from registry.deployments import EngineSettings

TOKENS = 64
ADAPTERS = 4
ENGINE = EngineSettings(max_model_len=512, max_loras=ADAPTERS, max_lora_rank=16, max_cpu_loras=16)
NAMES = ("script", "lorry")


def race(title: str, path: Path, jobs: int, pairs: int) -> dict[str, list[Outcome]]:
    """Both arms in turns, on new prompts in every round."""
    outcomes: dict[str, list[Outcome]] = {name: [] for name in NAMES}
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder, Stack(Path(folder)) as stack:
        arms = Arms(stack, title, path, ENGINE, NAMES, adapters=ADAPTERS, rank=16)
        for name in NAMES:
            arms.run(name, requests(ADAPTERS * 4, ADAPTERS, "uniform", -1, tokens=(4, 4)))
        for number, name in turns(NAMES, pairs):
            outcome = arms.run(name, requests(jobs, ADAPTERS, "uniform", number, tokens=(TOKENS, TOKENS)))
            outcomes[name].append(outcome)
            held, live = arms.held_and_live(name)
            print(f"{title} {name:6} held {held!s:>4} live {live} {outcome.rate:7.1f} tok/s", flush=True)
    return outcomes


def rates(outcomes: dict[str, list[Outcome]]) -> dict[str, list[float]]:
    """Tokens a second by arm."""
    return {name: [outcome.rate for outcome in runs] for name, runs in outcomes.items()}


def row(title: str, jobs: int, outcomes: dict[str, list[Outcome]]) -> Sequence[object]:
    """One line of the table."""
    speeds = rates(outcomes)
    return [
        title,
        jobs,
        *(f"{median(speeds[name]):.0f}" for name in NAMES),
        f"{median_ratio(speeds, 'lorry', 'script'):.3f}",
    ]


def main(argv: list[str] | None = None) -> None:
    """Both models, one after the other."""
    given = options.parse("overhead", argv)
    models = {
        "smollm2": (ensure_base(model.cache_dir()), 16 if given.quick else 48),
        "h512": (model.random_model(), 32 if given.quick else 96),
    }
    results = {title: race(title, path, jobs, given.pairs) for title, (path, jobs) in models.items()}
    measured = {f"overhead_{title}": median_ratio(rates(runs), "lorry", "script") for title, runs in results.items()}
    table: dict[str, Any] = {
        "title": f"{TOKENS} output tokens a job, {ADAPTERS} adapters, all in slots",
        "columns": ["model", "jobs", "script tok/s", "Lorry tok/s", "ratio"],
        "rows": [row(title, models[title][1], runs) for title, runs in results.items()],
    }
    runs = {title: {name: list(map(asdict, one)) for name, one in arms.items()} for title, arms in results.items()}
    figures.write(given.json, measured, {"tables": [table], "runs": runs})


if __name__ == "__main__":
    main()
