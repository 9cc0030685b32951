"""What a pick charges, lifts, caps and prefers, against the real database."""

from __future__ import annotations

from collections import Counter

from sqlalchemy import text

from registry import backlog, presence, tallies, transitions
from registry.backlog.order import AHEAD_JOBS
from registry.db import Database
from registry.presence import Beat
from tests.registry.test_backlog import fill, pick, tenants_of
from tests.world import World

LENGTHS = text("""
INSERT INTO job_lengths (deployment, tenant_id, adapter_key, prompt_tokens, output_tokens)
SELECT 'Tiny', id, 0, 0, :tokens FROM tenants
""")


def test_a_newcomer_goes_first_for_a_while_and_then_shares(world: World, system_db: Database) -> None:
    fill(world, "early", 200)
    [first, *_] = pick(world, 16)
    fill(world, "late", 200)
    with system_db.transaction() as session:
        session.execute(LENGTHS, {"tokens": world.row(first)["charged"]})
    with system_db.transaction() as session:
        picked = backlog.pick(session, "Tiny", 8, ahead=100)
    assert set(tenants_of(world, list(picked.jobs))) == {"late"}
    assert len(picked.jobs) == picked.hurried == AHEAD_JOBS
    with system_db.transaction() as session:
        assert not backlog.pick(session, "Tiny", 0, ahead=100).jobs, "its advance is used up, also in the database"
    paid_back = pick(world, AHEAD_JOBS, run=AHEAD_JOBS)
    assert Counter(tenants_of(world, paid_back)) == {"early": AHEAD_JOBS}
    assert Counter(tenants_of(world, pick(world, 8))) == {"early": 4, "late": 4}


def test_tokens_count_not_jobs(world: World) -> None:
    """One tenant's jobs are four times as long: it gets a quarter of the jobs."""
    world.adapter("long", "tickets")
    world.adapter("short", "tickets")
    for _ in range(20):
        world.job("long", model="tickets", max_tokens=400)
        world.job("short", model="tickets", max_tokens=100)
    served: Counter[str] = Counter()
    for _ in range(10):
        served.update(tenants_of(world, pick(world, 2)))
    assert served["short"] >= 2.5 * served["long"]


def test_a_job_that_is_picked_again_is_not_charged_again(world: World, system_db: Database) -> None:
    job = world.job("acme")

    def counter() -> float:
        with system_db.transaction() as session:
            return float(session.scalar(text("SELECT served FROM service_counters WHERE tenant_id = 'acme'")) or 0)

    pick(world, 1)
    charged = counter()
    assert charged == world.row(job)["charged"] > 16
    with system_db.transaction() as session:
        transitions.message_lost(session, [job])
    assert pick(world, 1) == [job]
    assert counter() == charged


def test_the_charge_is_corrected_by_the_tokens_really_used(world: World, system_db: Database) -> None:
    job, worker = world.job("acme", max_tokens=400), world.worker()
    pick(world, 1)
    world.claim(worker, [job])
    with system_db.transaction() as session:
        done = transitions.Outcome(
            job, 1, "succeeded", text="x", finish_reason="stop", prompt_tokens=20, output_tokens=30, timing={}
        )
        transitions.settle(session, [done])
        tallies.fold(session)
        counter = session.scalar(text("SELECT served FROM service_counters WHERE tenant_id = 'acme'"))
        length = session.execute(text("SELECT prompt_tokens, output_tokens FROM job_lengths")).one()
    assert world.row(job)["charged"] > 400
    assert (counter, tuple(length)) == (50, (20, 30))
    following = world.job("acme", max_tokens=400)
    pick(world, 1)
    assert world.row(following)["charged"] < 200, "the history, not max_tokens, is what it is expected to write"


def test_a_near_deadline_jumps_and_a_far_one_does_not(world: World, system_db: Database) -> None:
    fill(world, "acme", 30)
    fill(world, "globex", 30)
    with system_db.transaction() as session:
        late = text("UPDATE jobs SET deadline = now() + interval '9 h' WHERE seq = (SELECT min(seq) FROM jobs)")
        soon = text("UPDATE jobs SET deadline = now() + interval '10 s' WHERE seq = (SELECT max(seq) FROM jobs)")
        session.execute(late)
        session.execute(soon)
        near = session.scalar(text("SELECT id FROM jobs ORDER BY deadline LIMIT 1"))
    assert pick(world, 4)[0] == near


def test_what_a_dead_worker_held_overtakes_all_that_was_sent_and_pays_once(world: World, system_db: Database) -> None:
    """Its tenant has had its share already, and has no other turn for long."""

    def served() -> float:
        with system_db.transaction() as session:
            return float(session.scalar(text("SELECT served FROM service_counters WHERE tenant_id = 'heavy'")))

    fill(world, "heavy", 40)
    worker = world.worker()
    held = pick(world, 20)
    world.claim(worker, held)
    with system_db.transaction() as session:
        session.execute(text("UPDATE jobs SET deadline = now() + interval '10 s' WHERE id = :id"), {"id": held[-1]})
    fill(world, "light", 40)
    with system_db.transaction() as session:
        transitions.rescue(session, worker)
    paid = served()
    with system_db.transaction() as session:
        picked = backlog.pick(session, "Tiny", 24)
    assert list(picked.jobs[:20]) == held
    assert picked.hurried >= 20
    assert set(tenants_of(world, list(picked.jobs[20:]))) == {"light"}
    assert served() == paid


def test_a_paused_tenants_rescued_jobs_wait_like_its_others(world: World, system_db: Database) -> None:
    fill(world, "acme", 4)
    worker = world.worker()
    world.claim(worker, pick(world, 2))
    fill(world, "globex", 4)
    with system_db.transaction() as session:
        transitions.rescue(session, worker)
        session.execute(text("UPDATE tenants SET paused_at = now() WHERE id = 'acme'"))
    assert set(tenants_of(world, pick(world, 8))) == {"globex"}


def test_adapters_with_unfinished_jobs_are_capped(world: World) -> None:
    """Two slots, one worker: eight adapters at a time."""
    adapters = [world.adapter(f"t{n}", "tickets").adapter_id for n in range(12)]
    for n, adapter in enumerate(adapters):
        fill(world, f"t{n}", 10, adapter)
    picked = {world.row(job_id)["adapter_id"] for job_id in pick(world, 100) + pick(world, 100)}
    assert len(picked) == 8


def test_a_workers_resident_adapters_go_first(world: World, system_db: Database) -> None:
    first, second = (world.adapter("acme", name).adapter_id for name in ("a", "b"))
    fill(world, "acme", 5, first)
    fill(world, "acme", 5, second)
    with system_db.transaction() as session:
        presence.beat(session, world.worker(), Beat(0, 0, {"slots": [second]}))
    assert [world.row(job_id)["adapter_id"] for job_id in pick(world, 5)] == [second] * 5


def test_next_uses_tell_who_waits_in_the_backlog_and_in_what_order(world: World, system_db: Database) -> None:
    idle, late, soon = (world.adapter(tenant, "tickets").adapter_id for tenant in ("idle", "late", "soon"))
    fill(world, "soon", 2, soon)
    fill(world, "late", 2, late)
    with system_db.transaction() as session:
        assert backlog.next_uses(session, "Tiny", [idle, late, soon]) == {soon: 1, late: 2}
