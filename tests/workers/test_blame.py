"""Which failed loads are held against an adapter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.planner_rig import PlannerRig, finish
from workers.fake_markers import LOAD_FAILS_KEY
from workers.policy import Rules


@pytest.fixture
def rig(tiny_base_dir: Path, tmp_path: Path) -> Iterator[PlannerRig]:
    made = PlannerRig(tiny_base_dir, tmp_path, Rules(8, 2, 0.05, 0.2))
    yield made
    made.close()


def test_a_refused_load_counts_once_for_all_jobs_that_waited_for_it(rig: PlannerRig) -> None:
    jobs = [rig.job(1), rig.job(1)]
    config = rig.folder(1) / "adapter_config.json"
    config.write_text(config.read_text().replace("{", f'{{"{LOAD_FAILS_KEY}": true, ', 1))
    rig.hold(*jobs)
    finish(*jobs)
    assert len(rig.writer.blamed) == 1
    assert {outcome.error_code for outcome in rig.writer.outcomes.values()} == {"adapter_load_failed"}


def test_files_that_the_store_has_lost_are_not_held_against_the_adapter(rig: PlannerRig) -> None:
    job = rig.job(1)
    for file in rig.folder(1).iterdir():
        file.unlink()
    rig.hold(job)
    finish(job)
    assert rig.writer.blamed == []
    assert rig.writer.outcomes[job.job_id].error_code == "adapter_files_lost"
