"""Workers that are killed, frozen, told to go, or that meet a poisonous job: rows 1, 3 to 7 and 9 of the plan."""

from __future__ import annotations

import signal
import time
import uuid
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from sqlalchemy import text

from registry import metrics, transitions
from registry.failpoints import EXIT_CODE
from tests.e2e.crew import Member, eventually
from tests.faults.checker import count, settled
from tests.faults.cluster import Cluster, took
from workers.fake_markers import Marker

_RUNNING_ON = text("SELECT count(*) FROM jobs WHERE worker = :worker AND state = 'running'")
_LIVE_ON = text("SELECT count(*) FROM jobs WHERE worker = :worker AND state = 'running' AND started_at IS NOT NULL")
_FENCED = text("SELECT count(*) FROM jobs WHERE fence > 1 AND id = ANY(:ids)")
_ROW_STATE = text("SELECT count(*) FROM workers WHERE id = :worker AND state = :state")


def busy(cluster: Cluster, member: Member) -> uuid.UUID:
    """Wait until this worker has jobs in its engine; its row's id."""
    worker: uuid.UUID = eventually(lambda: cluster.crew.worker_row(member))["id"]
    eventually(lambda: count(cluster, _LIVE_ON, worker=worker))
    return worker


def dead_or_failed(cluster: Cluster, worker: Member, job: uuid.UUID) -> bool:
    return worker.process.poll() is not None or cluster.world.state(job) == "failed"


def test_row_1_kill_9_with_jobs_in_the_engine(cluster: Cluster) -> None:
    victim = cluster.victim("1", LORRY_FAKE_STEP_MS="30")
    jobs = cluster.load.submit(200)
    worker = busy(cluster, victim)
    held = count(cluster, _RUNNING_ON, worker=worker)
    victim.kill()
    assert took(lambda: not count(cluster, _RUNNING_ON, worker=worker), within_s=8) < 8
    settled(cluster)
    assert 0 < count(cluster, _FENCED, ids=jobs) <= held + 8, "only what the victim held may run twice"


@pytest.mark.parametrize("failpoint", ["after_settle_commit", "after_claim_commit"], ids=["row_3", "row_4"])
def test_a_worker_that_dies_right_after_a_commit(cluster: Cluster, failpoint: str) -> None:
    victim = cluster.victim("2", LORRY_FAILPOINT=failpoint)
    cluster.load.submit(150)
    assert victim.exit_code() == EXIT_CODE
    settled(cluster)


def test_row_5_a_message_lost_between_pop_and_unacked_is_sent_again(cluster: Cluster) -> None:
    victim = cluster.altered("dies_after_pop", "3")
    eventually(lambda: cluster.crew.worker_row(victim).get("state") == "ready")
    cluster.load.submit(100)
    assert victim.exit_code() == EXIT_CODE
    begun_s = time.monotonic()
    settled(cluster, within_s=15)
    assert time.monotonic() - begun_s < 15


def test_row_6_a_frozen_worker_wakes_as_a_zombie_and_changes_nothing(cluster: Cluster) -> None:
    zombie = cluster.victim("4", LORRY_FAKE_STEP_MS="30")
    cluster.load.submit(200)
    worker = busy(cluster, zombie)
    zombie.freeze()
    settled(cluster)
    assert count(cluster, _ROW_STATE, worker=worker, state="dead") == 1
    zombie.thaw()
    eventually(lambda: cluster.crew.worker_row(zombie)["id"] != worker)
    cluster.load.submit(40)
    settled(cluster)
    zombie.terminate()
    assert zombie.exit_code() == 0


def test_row_6_what_a_worker_writes_after_its_lease_is_refused_and_counted(cluster: Cluster) -> None:
    """It works on, and only its beats are late: what it ends after it was declared dead is no longer its own."""
    late = cluster.victim("16", LORRY_BEAT_S="12", LORRY_FAKE_STEP_MS="300", LORRY_METRICS_PORT="0")
    cluster.load.submit(200)
    worker = busy(cluster, late)
    settled(cluster)
    assert count(cluster, _ROW_STATE, worker=worker, state="dead") == 1
    eventually(lambda: fenced_writes(cluster) >= 1)
    eventually(lambda: cluster.crew.worker_row(late)["id"] != worker)
    late.terminate()
    assert late.exit_code() == 0


def fenced_writes(cluster: Cluster) -> float:
    """Of all processes that show metrics."""
    total = 0.0
    for address in metrics.addresses(cluster.settings).values():
        with urlopen(address) as page:  # noqa: S310 - our own processes
            lines = page.read().decode().splitlines()
        total += sum(float(line.split()[-1]) for line in lines if line.startswith("lorry_fenced_writes_total{"))
    return total


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]], ids=["once", "twice"])
def test_row_7_told_to_go_under_load(cluster: Cluster, signals: list[signal.Signals]) -> None:
    leaver = cluster.victim("5", LORRY_FAKE_STEP_MS="400")
    cluster.load.submit(150)
    worker = busy(cluster, leaver)
    begun = time.monotonic()
    for number in signals:
        leaver.process.send_signal(number)
    code = leaver.exit_code(within_s=30)
    assert time.monotonic() - begun < 30
    if len(signals) == 1:
        assert code == 0
        assert count(cluster, _ROW_STATE, worker=worker, state="ended") == 1
        assert count(cluster, _RUNNING_ON, worker=worker) == 0
    settled(cluster)


def test_row_9_a_poisonous_job_fails_alone_after_three_deaths(cluster: Cluster) -> None:
    cluster.world.base("Brittle")
    harmless = cluster.load.submit(20, models=["Brittle"])
    poison = cluster.load.submit(1, models=["Brittle"], document="[[fake:poison]]", ends=["failed"])
    deaths = 0
    while cluster.world.state(poison[0]) != "failed":
        worker = cluster.victim("6", deployment="Brittle", wait=False)
        eventually(partial(dead_or_failed, cluster, worker, poison[0]))
        deaths += worker.process.poll() is not None
        assert deaths <= 4
    settled(cluster)
    assert cluster.world.row(poison[0])["error_code"] == "worker_lost"
    assert deaths <= 4
    assert {cluster.world.state(job) for job in harmless} == {"succeeded"}


@pytest.mark.parametrize("marker", [Marker.DEATH, Marker.HANG], ids=["dies", "hangs"])
def test_a_job_that_kills_or_hangs_its_engine_fails_alone_and_the_worker_goes_on(
    cluster: Cluster, marker: Marker
) -> None:
    base = f"Frail-{marker.name.lower()}"
    cluster.world.base(base)
    worker = cluster.victim("7", deployment=base, LORRY_WEDGED_AFTER_S="1")
    harmless = cluster.load.submit(20, models=[base])
    poison = cluster.load.submit(1, models=[base], document=marker, ends=["failed"])
    later = cluster.load.submit(20, models=[base])
    settled(cluster)
    assert cluster.world.row(poison[0])["error_code"] == "worker_lost"
    assert {cluster.world.state(job) for job in [*harmless, *later]} == {"succeeded"}
    assert worker.process.poll() is None, "an engine is started again, not the process"
    worker.terminate()
    assert worker.exit_code() == 0


def test_a_worker_whose_engine_is_being_started_leaves_the_jobs_to_others(cluster: Cluster, tmp_path: Path) -> None:
    cluster.world.base("Halting")
    gate = tmp_path / "gate"
    halted = cluster.altered("restarts_at_the_gate", "17", "Halting", GATE=str(gate))
    eventually(partial(cluster.crew.is_ready, halted))
    [killer] = cluster.load.submit(1, models=["Halting"], document=Marker.DEATH, ends=["cancelled"])
    eventually(lambda: cluster.crew.worker_row(halted)["state"] == "starting")
    with cluster.db.transaction() as session:
        transitions.cancel(session, cluster.world.row(killer)["tenant_id"], killer)
    other = cluster.victim("18", deployment="Halting")
    jobs = cluster.load.submit(40, models=["Halting"])
    settled(cluster)
    id_of = {member: cluster.crew.worker_row(member)["id"] for member in (halted, other)}
    assert {cluster.world.row(job)["worker"] for job in jobs} == {id_of[other]}
    gate.touch()
    eventually(partial(cluster.crew.is_ready, halted))
    other.terminate()
    assert other.exit_code() == 0
    later = cluster.load.submit(40, models=["Halting"])
    settled(cluster)
    assert {cluster.world.row(job)["worker"] for job in later} == {id_of[halted]}
    halted.terminate()
    assert halted.exit_code() == 0
