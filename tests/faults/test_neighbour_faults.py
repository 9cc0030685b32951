"""Cancels that race, a storm and a flood beside a trickle, a full disk: rows 8, 16, 39 and 56 of the plan."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import text

from registry import ids, quotas, transitions
from registry.embedded.ports import free_port
from tests.e2e.crew import eventually
from tests.faults.calls import Answered, call
from tests.faults.checker import count, settled
from tests.faults.cluster import Cluster, answers
from tests.faults.load import CANARY

_STATES = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND state = :state")
_STARTED = text("SELECT count(*) FROM jobs WHERE id = ANY(:ids) AND started_at IS NOT NULL")
_DWELLS = text("SELECT extract(epoch FROM finished_at - created_at)::float8 FROM jobs WHERE id = ANY(:ids)")
_EXPIRE = text("UPDATE jobs SET deadline = clock_timestamp() WHERE id = ANY(:ids)")


def test_row_39_cancels_race_with_everything_and_one_end_wins(cluster: Cluster) -> None:
    ends = ["cancelled", "succeeded", "expired"]
    jobs = cluster.load.submit(200, tenants=["acme"], ends=ends)
    expiring = jobs[:50]
    barrier = threading.Barrier(4)

    def cancel(part: Sequence[uuid.UUID]) -> None:
        barrier.wait()
        for job in part:
            for _ in range(2):
                with cluster.db.transaction() as session:
                    transitions.cancel(session, "acme", job)

    threads = [threading.Thread(target=cancel, args=(jobs[at::3],)) for at in range(3)]
    for thread in threads:
        thread.start()
    barrier.wait()
    with cluster.db.transaction() as session:
        session.execute(_EXPIRE, {"ids": expiring})
    for thread in threads:
        thread.join()
    eventually(lambda: sum(count(cluster, _STATES, ids=jobs, state=end) for end in ends) == len(jobs), within_s=10)
    assert count(cluster, _STATES, ids=jobs, state="cancelled") > 0
    ended = count(cluster, _STARTED, ids=jobs)
    settled(cluster)
    assert count(cluster, _STARTED, ids=jobs) == ended, "no engine may start for a job that was cancelled"


def test_row_56_a_trickle_beside_a_flood_waits_little_longer_than_alone(cluster: Cluster) -> None:
    def p95() -> float:
        jobs = cluster.load.submit(20, tenants=["umbrella"], models=["tickets"])
        eventually(lambda: count(cluster, _STATES, ids=jobs, state="succeeded") == len(jobs))
        with cluster.db.transaction() as session:
            return float(statistics.quantiles(session.scalars(_DWELLS, {"ids": jobs}), n=20)[-1])

    alone_s = p95()
    cluster.load.submit(600, tenants=["hooli"])
    beside_s = p95()
    # What was held when the trickle came (64 jobs, 8 at a time) is one slice of work.
    slice_s = 64 / 8 * 16 * 0.010
    assert beside_s <= 2 * alone_s + slice_s
    settled(cluster)


def test_row_8_a_storm_of_one_tenant_is_refused_by_the_book_and_no_other_tenant_hears_of_it(cluster: Cluster) -> None:
    """How fast the others are served meanwhile: benchmarks/polling.py."""
    url, patient, stormy = cluster.api(), cluster.world.key("umbrella"), cluster.world.key("hooli")
    job = {"model": "tickets", "document": CANARY}
    with cluster.db.transaction() as session:
        quotas.set_limits(session, "hooli", posts_per_minute=60)
    calm, storm = threading.Event(), []

    def rage() -> None:
        while not calm.is_set():
            storm.append(call(f"{url}/v1/jobs", stormy, job))

    threads = [threading.Thread(target=rage) for _ in range(4)]
    for thread in threads:
        thread.start()
    own = [call(f"{url}/v1/jobs", patient, job) for _ in range(10)]
    polls = [call(f"{url}/v1/jobs/{one.json['id']}", patient) for _ in range(20) for one in own]
    eventually(lambda: sum(answer.status == 429 for answer in storm) >= 100)
    calm.set()
    for thread in threads:
        thread.join()
    with cluster.db.transaction() as session:
        quotas.set_limits(session, "hooli", posts_per_minute=None)
    assert ({answer.status for answer in own}, {answer.status for answer in polls}) == ({202}, {200})
    taken = [answer for answer in storm if answer.status == 202]
    refused = [answer for answer in storm if answer.status != 202]
    assert 60 <= len(taken) < 60 + 30, "a minute's worth at once, then one a second"
    for answer in refused:
        assert (answer.status, answer.json["error"]["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(answer.headers["retry-after"]) <= 2
        assert answer.headers["ratelimit"].startswith('"tenant-rpm";r=0;t=')
    cluster.load.expect([ids.from_wire("job", answer.json["id"]) for answer in (*own, *taken)])
    settled(cluster)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs a mount of its own")
def test_row_16_a_full_disk_refuses_uploads_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    try_it = subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True)
    if try_it.returncode:
        pytest.skip("this machine allows no mount of one's own")
    key = cluster.world.key("acme")
    with SmallDisk(cluster, tmp_path) as api:
        assert upload(api.url, key, 64 * 1024).status == 200
        full = upload(api.url, key, 3 * 1024 * 1024)
        assert (full.status, full.json["error"]["code"]) == (507, "storage_full")
        assert upload(api.url, key, 64 * 1024).status == 200, "the space of a refused upload is free again"
        assert len(call(f"{api.url}/v1/files", key).json["data"]) == 2


def upload(url: str, key: str, size: int) -> Answered:
    """A file of one long line for a batch."""
    line = b'{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"pad": "%s"}}' % (b"x" * size)
    boundary = "row-16"
    body = (
        (
            f'--{boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\ncontent-disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
        ).encode()
        + line
        + f"\r\n--{boundary}--\r\n".encode()
    )
    return call(f"{url}/v1/files", key, body, content_type=f"multipart/form-data; boundary={boundary}")


class SmallDisk:
    """An API whose data folder is a disk of 2 MB, in a mount namespace of its own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._port = free_port()
        data = folder / "small"
        data.mkdir()
        command = f'mount -t tmpfs -o size=2m tmpfs {data} && exec {shutil.which("env")} "$@"'
        self._cluster = cluster
        self._argv = ("unshare", "-rm", "sh", "-c", command, "sh")
        self._data = data
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> SmallDisk:
        self._member = self._cluster.crew.start(
            "api", before=self._argv, LORRY_DATA_DIR=str(self._data), LORRY_API_PORT=str(self._port)
        )
        eventually(lambda: answers(self._port))
        return self

    def __exit__(self, *_: object) -> None:
        self._member.close()
