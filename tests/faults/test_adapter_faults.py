"""Adapters that change, go away, or break: rows 33, 34, 38 and 57 of the plan."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from sqlalchemy import text

from registry import adapter_states, adapters
from registry.errors import PreconditionFailed
from tests.e2e.crew import eventually
from tests.faults.checker import count, settled
from tests.faults.cluster import Cluster, took
from tests.faults.load import TENANTS
from workers.fake_markers import LOAD_FAILS_KEY

_VERSIONS = text("SELECT count(DISTINCT adapter_id) FROM jobs WHERE id = ANY(:ids)")
_UNAVAILABLE = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND error_code = 'adapter_unavailable'")
_OPEN_OF = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND finished_at IS NULL")
_LOADS = text(
    "SELECT sum(1.0 / (timing->'swap'->>'shared_by')::int)::float8 AS swaps,"
    " extract(epoch FROM max(started_at - created_at))::float8 AS longest_s"
    " FROM jobs WHERE id = ANY(:ids) AND timing->'swap'->>'state' <> 'hot'"
)


def none_open(cluster: Cluster, jobs: Sequence[uuid.UUID]) -> bool:
    return not count(cluster, _OPEN_OF, ids=jobs)


def test_row_33_versions_flip_while_jobs_are_submitted_and_each_answers_by_its_own(cluster: Cluster) -> None:
    for seed in (101, 102):
        cluster.world.adapter("acme", "flips", seed=seed)
    ended, lost = threading.Event(), 0

    def flip(wait_s: float) -> None:
        nonlocal lost
        for version in itertools.cycle((1, 2)):
            if ended.wait(wait_s):
                return
            try:
                with cluster.db.transaction() as session:
                    adapters.activate(session, "acme", "flips", version, instead_of={3 - version})
            except PreconditionFailed:
                lost += 1

    flippers = [threading.Thread(target=flip, args=(wait_s,)) for wait_s in (0.01, 0.013)]
    for flipper in flippers:
        flipper.start()
    try:
        jobs = [job for _ in range(60) for job in cluster.load.submit(5, tenants=["acme"], models=["flips"])]
    finally:
        ended.set()
        for flipper in flippers:
            flipper.join()
    settled(cluster)
    assert count(cluster, _VERSIONS, ids=jobs) == 2
    assert lost, "who came second was told so"


def test_row_34_jobs_of_an_adapter_that_goes_fail_at_once_and_nobody_elses(cluster: Cluster) -> None:
    for change in (adapter_states.retire, adapter_states.quarantine):
        name = change.__name__
        version = cluster.world.adapter("globex", name)
        doomed = cluster.load.submit(100, tenants=["globex"], models=[name], ends=["failed", "succeeded"])
        others = cluster.load.submit(50)
        with cluster.db.transaction() as session:
            change(session, "globex", name, version.version, "a test's doing")
        assert took(partial(none_open, cluster, doomed), within_s=10) < 10
        assert count(cluster, _UNAVAILABLE, ids=doomed) > 0
        settled(cluster)
        assert count(cluster, _UNAVAILABLE, ids=others) == 0


def test_row_38_an_adapter_that_does_not_load_fails_its_own_jobs_only(
    cluster: Cluster, make_adapter_dir: Callable[..., Path]
) -> None:
    broken = cluster.world.adapter("initech", "broken")
    configuration = Path(cluster.settings.store_dir) / broken.path / "adapter_config.json"
    changed = json.loads(configuration.read_text()) | {LOAD_FAILS_KEY: True}
    configuration.chmod(0o644)
    configuration.write_text(json.dumps(changed))
    doomed = cluster.load.submit(30, tenants=["initech"], models=["broken"], ends=["failed"])
    cluster.load.submit(60)
    settled(cluster)
    assert {cluster.world.row(job)["error_code"] for job in doomed} <= {
        "adapter_load_failed",
        "adapter_unavailable",
        "adapter_files_lost",
    }


def test_row_57_a_hundred_adapters_share_eight_slots_and_none_starves(cluster: Cluster) -> None:
    cluster.world.base("Many", max_loras=8, max_cpu_loras=32, max_num_seqs=16)
    worker = cluster.victim("11", deployment="Many", LORRY_FAKE_STEP_MS="2")
    names = [f"many-{number}" for number in range(20)]
    for tenant in TENANTS:
        for name in names:
            cluster.world.adapter(tenant, name, base="Many", seed=7)
    jobs = cluster.load.submit(2000, models=names)
    eventually(lambda: not count(cluster, _OPEN_OF, ids=jobs), within_s=90)
    with cluster.db.transaction() as session:
        row = session.execute(_LOADS, {"ids": jobs}).one()
    assert row.longest_s < 60
    assert row.swaps <= len(jobs) / 10
    worker.terminate()
    assert worker.exit_code() == 0
