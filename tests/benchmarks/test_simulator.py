"""The simulator: exact where the answer is known, the same every time, and fair as the product is."""

from __future__ import annotations

import pytest

from benchmarks.calibration import Measured, fit, rules, simulated_s
from benchmarks.simulated_worker import Job
from benchmarks.simulation import Point, work
from benchmarks.simulator import Simulation
from benchmarks.workload import requests
from registry.sizing import CostModel

COST = CostModel(base_s=0.01, row_s=0.001, swap_s=0.05)


def test_jobs_of_one_adapter_share_every_step() -> None:
    jobs = [Job(seq, 1, 0.0, 9) for seq in range(4)]

    result = Simulation(COST, rules(2), 1, jobs).run()

    # A tick, a swap, then ten steps (the first reads the prompts) of four live jobs.
    assert result.seconds == pytest.approx(0.03 + 0.05 + 10 * 0.014)
    assert (result.jobs, result.swaps, result.tokens) == (4, 1, 36)


def test_adapters_beyond_the_slots_swap_and_all_jobs_end() -> None:
    jobs = work(Point(2, 40, 400), 400, None)

    result = Simulation(COST, rules(4), 2, jobs).run()

    assert result.jobs == 400
    assert result.swaps >= 40
    assert min(result.waits_s) > 0


def test_a_run_is_the_same_every_time() -> None:
    first, again = (Simulation(COST, rules(4), 2, work(Point(2, 20, 300), 300, 50.0)).run() for _ in range(2))

    assert first == again


def test_tenants_that_all_wait_are_served_alike() -> None:
    jobs = work(Point(1, 4, 2000), 2000, None)

    assert Simulation(COST, rules(2), 1, jobs).run().fairness > 0.99


def test_fitting_finds_the_model_that_made_the_times() -> None:
    wanted = [requests(60, 4, "uniform", 0)]
    seconds = simulated_s(COST, Measured("made", 2, wanted, 0.0))

    found = fit(lambda row_s: CostModel(0.01, row_s, 0.05), Measured("made", 2, wanted, seconds), 1.0)

    assert found.row_s == pytest.approx(COST.row_s, rel=0.05)
