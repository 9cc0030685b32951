"""What a planner does is counted: decisions with their reasons, parts of swaps, waits; and what it holds is shown."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import Metric

from registry import metrics
from tests.workers.planner_rig import PlannerRig, finish
from workers.policy import Rules

RULES = Rules(max_live=8, max_loras=2, grouping_max_wait_s=0.05, adapter_max_wait_s=0.2)


def counts(name: str) -> dict[tuple[str, ...], float]:
    """Values of one sample name, by label values."""
    families: list[Metric] = list(metrics.REGISTRY.collect())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in samples}


def grown(name: str, before: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """What came on top."""
    grew = {labels: value - before.get(labels, 0.0) for labels, value in counts(name).items()}
    return {labels: value for labels, value in grew.items() if value}


def test_a_planners_work_is_counted(tiny_base_dir: Path, tmp_path: Path) -> None:
    names = ("lorry_decisions_total", "lorry_swap_seconds_count", "lorry_wait_seconds_count")
    before = {name: counts(name) for name in names}
    rig = PlannerRig(tiny_base_dir, tmp_path, RULES, load_ms=20, activate_ms=5)
    jobs = [rig.job(adapter) for adapter in (1, 1, 2)]
    rig.hold(*jobs)
    finish(*jobs)
    rig.close()

    decisions = grown("lorry_decisions_total", before["lorry_decisions_total"])
    assert decisions[("SwapIn", "a slot is free")] == 2
    assert sum(value for (kind, _), value in decisions.items() if kind == "Admit") == 3
    assert grown("lorry_swap_seconds_count", before["lorry_swap_seconds_count"]) == {
        ("cold", part): 2 for part in ("fetch", "load", "activate")
    }
    assert grown("lorry_wait_seconds_count", before["lorry_wait_seconds_count"]) == {
        (cause,): 3 for cause in ("queued", "held", "swap")
    }
