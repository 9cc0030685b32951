"""From a measured run back to what its steps cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import calibration
from benchmarks.calibration import SWAP_S, Measured
from benchmarks.workload import few, requests
from registry.sizing import CostModel

JOBS = 48
CASES = ("16 adapters / 2 slots, uniform", "16 adapters / 2 slots, bursty")
COST = CostModel(base_s=0.008, row_s=0.0015, swap_s=SWAP_S)


def test_a_run_by_the_cost_model_gives_the_cost_model_back(tmp_path: Path) -> None:
    runs: dict[str, dict[str, list[dict[str, float]]]] = {}
    for case in CASES:
        wanted = requests(JOBS, 16, case.rpartition(" ")[2], 0)
        alone_s = sum(one.max_tokens + 1 for one in few(wanted)) * COST.step_s(1)
        lorry_s = calibration.simulated_s(COST, Measured(case, 2, [wanted], 0.0))
        runs[case] = {
            "one": [{"seconds": alone_s, "activations": 0}],
            "lorry": [{"seconds": lorry_s, "activations": 20}],
        }
    raw = {"tables": [{"title": f"{case}, {JOBS} jobs"} for case in CASES], "runs": runs}
    result = tmp_path / "batching.json"
    result.write_text(json.dumps({"commit": "0123456789ab", "raw": raw}))
    found = calibration.from_batching(result)
    assert found.cost.base_s == pytest.approx(COST.base_s, rel=0.02)
    assert found.cost.row_s == pytest.approx(COST.row_s, rel=0.02)
    assert found.worst_error < 0.02
    assert "0123456789ab" in found.source
