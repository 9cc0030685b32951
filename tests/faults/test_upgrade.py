"""A rolling upgrade under load from this release to a next one, process by process, and half the way back: row 60.

The next release is this tree with one migration more and a message that says more than this release's workers can read.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from sqlalchemy import text

from registry import migrations
from tests.e2e.crew import ROOT, Member, eventually
from tests.faults.checker import check, count
from tests.faults.cluster import QUICK, Cluster

CHANGES = {
    "registry/queues.py": ("args=(wire_id,),", "args=(wire_id, 2) if task == RUN_JOB else (wire_id,),"),
    "workers/tasks.py": ("def run_job(wire_id: str)", "def run_job(wire_id: str, version: int = 1)"),
}
MIGRATION = """
from alembic import op

revision = "next"
down_revision = "{head}"


def upgrade() -> None:
    op.execute("SET ROLE lorry_owner")
    op.execute("ALTER TABLE jobs ADD COLUMN of_the_next_release text DEFAULT 'x' NOT NULL")
    op.execute("CREATE TABLE things_of_the_next_release (id bigint PRIMARY KEY)")
    op.execute("RESET ROLE")
"""
_DONE = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND finished_at IS NOT NULL")
_PIDS = text("SELECT DISTINCT w.pid FROM jobs JOIN workers w ON w.id = jobs.worker WHERE jobs.id = ANY(:ids)")
_REVISION = text("SELECT version_num FROM alembic_version")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One of its own: its schema will not be this release's."""
    with Cluster(tmp_path / "cluster", **QUICK) as made:
        yield made


def next_release(folder: Path) -> Path:
    """Its source tree."""
    for package in ("api", "registry", "workers"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (old, new) in CHANGES.items():
        source = (folder / name).read_text()
        assert source.count(old) == 1, f"{name} has changed: say anew what the next release does differently"
        (folder / name).write_text(source.replace(old, new))
    migration = folder / "registry" / "migrations" / "versions" / "next_release.py"
    migration.write_text(MIGRATION.format(head=migrations.head()))
    return folder


def migrated(cluster: Cluster, root: Path) -> bool:
    """One try: it gives up on a lock under load, and may be repeated."""
    return cluster.crew.start("registry.migrations", root=root).exit_code() == 0


def revision(cluster: Cluster) -> str:
    with cluster.db.transaction() as session:
        return str(session.scalar(_REVISION))


def workers_of(cluster: Cluster, jobs: list[uuid.UUID]) -> set[int]:
    """The processes by which these jobs were done."""
    with cluster.db.transaction() as session:
        return set(session.scalars(_PIDS, {"ids": jobs}))


def leave(*members: Member) -> None:
    for member in members:
        member.terminate()
        assert member.exit_code() == 0


def test_row_60_two_releases_at_once_lose_nothing_on_the_way_there_and_back(cluster: Cluster, tmp_path: Path) -> None:
    crew, later = cluster.crew, next_release(tmp_path / "later")
    url, leader, worker = cluster.api(), crew.dispatcher(), crew.worker(device="0")
    first = cluster.load.submit(300)
    eventually(lambda: count(cluster, _DONE, ids=first) > 0)

    eventually(lambda: migrated(cluster, later))
    with urlopen(f"{url}/readyz") as answer:  # noqa: S310 - our own address
        assert answer.status == 200, "the old release goes on with the new schema"
    newer = crew.worker(device="1", root=later)
    both = cluster.load.submit(300)
    eventually(lambda: count(cluster, _DONE, ids=both) == len(both))
    assert workers_of(cluster, both) == {worker.pid, newer.pid}

    next_leader = crew.dispatcher(root=later)
    leave(leader)
    beyond = cluster.load.submit(100)  # in messages of which the old worker understands none
    eventually(lambda: count(cluster, _DONE, ids=beyond) == len(beyond))
    assert workers_of(cluster, beyond) == {newer.pid}

    assert migrated(cluster, ROOT), "the old release leaves the new schema alone"
    assert revision(cluster) == "next"
    back = crew.dispatcher()
    leave(next_leader, newer)
    last = cluster.load.submit(100)
    check(cluster)
    assert workers_of(cluster, last) == {worker.pid}
    leave(back, worker)
