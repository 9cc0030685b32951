"""The pick: tenants in turns by weight, adapters in runs, each job once, and nobody starved by ties."""

from __future__ import annotations

import threading
import uuid
from collections import Counter

import pytest
from sqlalchemy import text

from registry import backlog
from registry.db import Database
from registry.states import State
from tests.world import World

FILL = text("""
INSERT INTO jobs (id, tenant_id, deployment, adapter_id, model)
SELECT uuidv7(), :tenant, 'Tiny', :adapter, 'x' FROM generate_series(1, :count)
""")


def fill(world: World, tenant: str, count: int, adapter: int | None = None) -> None:
    world.tenant(tenant)
    world.base()
    with world.db.transaction() as session:
        session.execute(FILL, {"tenant": tenant, "count": count, "adapter": adapter})


def pick(world: World, wanted: int, run: int = 8) -> list[uuid.UUID]:
    with world.db.transaction() as session:
        return list(backlog.pick(session, "Tiny", wanted, run).jobs)


def tenants_of(world: World, picked: list[uuid.UUID]) -> list[str]:
    return [world.row(job_id)["tenant_id"] for job_id in picked]


def test_a_pick_dispatches_and_stamps_growing_turns(world: World) -> None:
    fill(world, "acme", 20)
    first, second = pick(world, 5), pick(world, 5)
    rows = [world.row(job_id) for job_id in first + second]
    assert {row["state"] for row in rows} == {"dispatched"}
    turns = [row["turn"] for row in rows]
    assert turns == sorted(set(turns))
    assert all(row["dispatched_at"] is not None for row in rows)


def test_a_tenants_jobs_of_one_adapter_go_in_the_order_they_came(world: World) -> None:
    fill(world, "acme", 30)
    picked = [world.row(job_id)["seq"] for job_id in pick(world, 6) + pick(world, 6)]
    assert picked == sorted(picked)


def test_nothing_wanted_or_nothing_waiting_picks_nothing(world: World) -> None:
    assert pick(world, 10) == []
    fill(world, "acme", 1)
    assert pick(world, 0) == []
    assert len(pick(world, 10)) == 1


def test_a_small_tenant_is_served_beside_a_large_one(world: World) -> None:
    fill(world, "large", 500)
    fill(world, "small", 3)
    served = Counter(tenants_of(world, pick(world, 6)))
    assert served == {"large": 3, "small": 3}


def test_a_weight_of_three_gets_three_times_the_turns(world: World) -> None:
    world.tenant("heavy", weight=3)
    fill(world, "heavy", 100)
    fill(world, "light", 100)
    served = Counter(tenants_of(world, pick(world, 40, run=40)))
    assert served["heavy"] == pytest.approx(30, abs=1)


def test_adapters_of_a_tenant_come_in_runs_oldest_first(world: World) -> None:
    adapters = [world.adapter("acme", name).adapter_id for name in ("a", "b", "c")]
    for adapter in adapters[::-1] * 4:
        fill(world, "acme", 1, adapter)
    picked = [world.row(job_id)["adapter_id"] for job_id in pick(world, 12, run=4)]
    assert picked == [adapters[2]] * 4 + [adapters[1]] * 4 + [adapters[0]] * 4


def test_a_lower_priority_number_goes_first(world: World, system_db: Database) -> None:
    fill(world, "acme", 5)
    with system_db.transaction() as session:
        urgent = session.scalar(
            text("UPDATE jobs SET priority = -1 WHERE seq = (SELECT max(seq) FROM jobs) RETURNING id")
        )
    assert pick(world, 3)[0] == urgent


def test_only_the_deployments_own_queued_jobs_are_picked(world: World) -> None:
    world.base("Other")
    world.job(model="Other")
    waiting = world.job()
    for state in set(State) - {State.QUEUED}:
        world.job_in(state)
    assert pick(world, 10) == [waiting]


def test_picks_at_once_are_disjoint(world: World) -> None:
    fill(world, "acme", 60)
    fill(world, "globex", 60)
    gate = threading.Barrier(4)
    picked: list[list[uuid.UUID]] = []

    def run() -> None:
        gate.wait()
        picked.append(pick(world, 20, run=60))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [job_id for ids in picked for job_id in ids]
    assert len(everything) == len(set(everything)) >= 20


def test_a_locked_job_is_skipped_not_waited_for(world: World, system_db: Database) -> None:
    locked, free = world.job(), world.job()
    with system_db.transaction() as holder:
        holder.execute(text("SELECT FROM jobs WHERE id = :id FOR UPDATE"), {"id": locked})
        assert pick(world, 10) == [free]
    assert pick(world, 10) == [locked]


@pytest.fixture
def five_hundred(world: World) -> World:
    world.base()
    with world.db.transaction() as session:
        session.execute(text("INSERT INTO tenants (id, name) SELECT 't' || n, 'x' FROM generate_series(1, 500) AS n"))
        session.execute(
            text("""INSERT INTO jobs (id, tenant_id, deployment, model)
                    SELECT uuidv7(), 't' || n, 'Tiny', 'x' FROM generate_series(1, 500) AS n, generate_series(1, 8)""")
        )
    return world


def served(world: World) -> Counter[str]:
    with world.db.transaction() as session:
        rows = session.execute(text("SELECT tenant_id, count(*) FROM jobs WHERE state <> 'queued' GROUP BY 1"))
        return Counter({row.tenant_id: row.count for row in rows})


def test_every_one_of_500_tenants_is_served_in_each_round(five_hundred: World) -> None:
    for round_ in (1, 2):
        pick(five_hundred, 250)
        pick(five_hundred, 250)
        assert set(served(five_hundred).values()) == {round_}
        assert len(served(five_hundred)) == 500


def test_ties_do_not_favour_the_same_tenants_when_jobs_end_at_once(five_hundred: World) -> None:
    """With nothing in flight every pick is all ties: by name, tenants 251 to 500 would get nothing in four rounds."""
    for _ in range(4):
        pick(five_hundred, 250)
        with five_hundred.db.transaction() as session:
            session.execute(text("UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE state = 'dispatched'"))
    assert len(served(five_hundred)) > 420


def test_loads_tell_what_waits_and_who_is_there(world: World, system_db: Database) -> None:
    world.base("Idle")
    world.job()
    world.job_in(State.DISPATCHED)
    world.job_in(State.RUNNING)
    world.worker(capacity=8)
    world.worker(capacity=4)
    silent = world.worker(capacity=64)
    with system_db.transaction() as session:
        session.execute(text("UPDATE workers SET beat_at = now() - interval '1 min' WHERE id = :id"), {"id": silent})
        idle, tiny = backlog.loads(session, 30)
        lengths = [(x.deployment, x.queued, x.dispatched, x.running) for x in backlog.lengths(session)]
    assert idle == backlog.Load("Idle", False, 0, 0, 0)
    assert tiny == backlog.Load("Tiny", True, 1, 1, 12)
    assert (idle.busy, tiny.busy) == (False, True)
    assert lengths == [("Idle", 0, 0, 0), ("Tiny", 1, 1, 1)]


def test_only_jobs_dispatched_long_enough_ago_are_overdue(world: World, system_db: Database) -> None:
    old, _new = world.job(), world.job()
    world.pick()
    with system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET dispatched_at = now() - interval '3 s' WHERE id = :id"), {"id": old})
        assert backlog.overdue(session, "Tiny", 2.0) == {old}
        assert backlog.overdue(session, "Other", 2.0) == set()
