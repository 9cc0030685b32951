"""From a measured run to a cost model: fitted to one pattern of arrivals, its error found on the others.

A run of `benchmarks.batching` is taken when its result is there; else a Lorry with the engine without a model is run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import model
from benchmarks.simulated_worker import Job
from benchmarks.simulator import Simulation
from benchmarks.stack import Stack
from benchmarks.workload import Request, few, requests
from registry.deployments import EngineSettings
from registry.settings import Settings
from registry.sizing import CostModel
from workers.gpu import held_capacity
from workers.policy import Rules

SWAP_S = 0.004
"""An adapter of rank 16 from host memory into a slot: too short beside a step to be fitted."""
SLOTS = {"16 adapters / 2 slots": 2, "64 adapters / 4 slots": 4}
FAKE_STEP_MS = 20.0
FAKE_TOKENS = 16
LONGEST_STEP_S = 10.0
HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Measured:
    """One case of a real run: its jobs of each round, and the median of its seconds."""

    name: str
    slots: int
    rounds: list[list[Request]]
    seconds: float
    longest_answer: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Calibration:
    """`errors`: of the simulated seconds against the measured ones, by case; the first one was fitted."""

    cost: CostModel
    source: str
    errors: dict[str, float]

    @property
    def worst_error(self) -> float:
        """Of the cases that the model was not fitted to."""
        return max(abs(error) for error in list(self.errors.values())[1:])


def rules(slots: int) -> Rules:
    """The product's defaults."""
    settings = Settings()
    live = EngineSettings().max_num_seqs
    held = held_capacity(settings, live, slots)
    return Rules(live, slots, settings.grouping_max_wait_s, settings.adapter_max_wait_s, held)


def simulated_s(cost: CostModel, case: Measured) -> float:
    """Seconds of a case by the model: median over its rounds."""
    return median(_simulated_s(cost, case, wanted) for wanted in case.rounds)


def _simulated_s(cost: CostModel, case: Measured, wanted: Sequence[Request]) -> float:
    jobs = [
        Job(seq, (one.adapter or 0) + 1, 0.0, min(one.max_tokens, case.longest_answer))
        for seq, one in enumerate(wanted)
    ]
    return Simulation(cost, rules(case.slots), 1, jobs).run().seconds


def fit(make: Callable[[float], CostModel], case: Measured, most: float) -> CostModel:
    """The model of which the case takes as long as measured: more of the sought value makes it longer."""
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if simulated_s(make(middle), case) < case.seconds:
            low = middle
        else:
            high = middle
    return make((low + high) / 2)


def from_batching(result: Path) -> Calibration:
    """What a step costs alone comes from the arm that runs one job at a time; the rest from Lorry's own."""
    raw = json.loads(result.read_text("utf-8"))["raw"]
    cases = [_case(name, arms["lorry"], raw) for name, arms in raw["runs"].items()]
    alone = next(iter(raw["runs"].values()))["one"]
    steps = [sum(one.max_tokens + 1 for one in few(wanted)) for wanted in cases[0].rounds]
    swaps = [(run["activations"] or 0) * SWAP_S for run in alone]
    single_s = median((run["seconds"] - swap) / count for run, swap, count in zip(alone, swaps, steps, strict=True))
    cost = fit(lambda row_s: CostModel(single_s - row_s, row_s, SWAP_S), cases[0], single_s)
    return _judged(cost, cases, f"batching at commit {json.loads(result.read_text('utf-8'))['commit']}")


def _case(name: str, runs: list[dict[str, Any]], raw: dict[str, Any]) -> Measured:
    title = next(table["title"] for table in raw["tables"] if table["title"].startswith(name))
    jobs = int(title.rpartition(", ")[2].split()[0])
    sizes, _, pattern = name.partition(", ")
    adapters = int(sizes.split()[0])
    rounds = [requests(jobs, adapters, pattern, number) for number in range(len(runs))]
    return Measured(name, SLOTS[sizes], rounds, median(run["seconds"] for run in runs))


def from_fake_engine(*, jobs: int, rounds: int) -> Calibration:
    """Everything of Lorry but a model: its steps take equally long whatever runs."""
    engine = EngineSettings(max_model_len=512, max_loras=2)
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder, Stack(Path(folder)) as stack:
        stack.base("fake", model.random_model(), engine)
        stack.adapters("fake", 16, 16)
        stack.worker("fake", LORRY_ENGINE="fake", LORRY_FAKE_STEP_MS=str(FAKE_STEP_MS))
        stack.ready("fake")
        stack.run("fake", requests(jobs, 16, "uniform", -1))
        cases = []
        for pattern in ("uniform", "zipf", "bursty"):
            wanted = [requests(jobs, 16, pattern, number) for number in range(rounds)]
            seconds = median(stack.run("fake", one).seconds for one in wanted)
            cases.append(Measured(pattern, 2, wanted, seconds, FAKE_TOKENS))
    cost = fit(lambda base_s: CostModel(base_s, 0.0, 0.0), cases[0], LONGEST_STEP_S)
    return _judged(cost, cases, "the engine without a model")


def _judged(cost: CostModel, cases: Sequence[Measured], source: str) -> Calibration:
    errors = {case.name: simulated_s(cost, case) / case.seconds - 1 for case in cases}
    return Calibration(cost, source, errors)
