"""How workers end: in a hurry, by an operator's word, with their neighbours away; and who quarantines."""

from __future__ import annotations

import signal
import time
import uuid
from functools import partial
from pathlib import Path

from sqlalchemy import text

from registry import adapter_files, operations
from registry.db import Database
from registry.settings import Settings
from tests.e2e.crew import Crew, eventually
from tests.e2e.submitted import SLOW_MS, all_once, busy, submit
from tests.relay import Relay
from tests.world import World
from workers.fake_markers import LOAD_FAILS_KEY
from workers.leaving import START_ANEW

ENDLESS_MS = "60000"


def failed(crew: Crew, count: int) -> bool:
    return crew.states().get("failed", 0) == count


def running_since(crew: Crew, jobs: list[uuid.UUID]) -> None:
    eventually(lambda: any(job.started_at for job in crew.jobs()))
    assert jobs


def test_a_second_signal_does_not_wait_and_harms_no_job(crew: Crew, world: World) -> None:
    jobs = submit(world, 10)
    crew.dispatcher()
    first = crew.worker(LORRY_DRAIN_GRACE_S="30", LORRY_FAKE_STEP_MS=ENDLESS_MS)
    running_since(crew, jobs)
    begun_s = time.monotonic()
    first.terminate()
    eventually(lambda: crew.worker_row(first)["state"] == "draining")
    first.process.send_signal(signal.SIGINT)
    assert first.exit_code(within_s=15) == 0
    assert time.monotonic() - begun_s < 15
    assert (crew.worker_row(first)["state"], crew.states().get("running", 0)) == ("ended", 0)
    assert {job.crashes for job in crew.jobs()} == {0}, "leaving in a hurry is nobody's crash"
    crew.worker()
    all_once(crew, jobs)


def test_a_drained_worker_hands_back_and_exits_with_0(crew: Crew, world: World, system_db: Database) -> None:
    jobs = submit(world, 40)
    crew.dispatcher()
    first = crew.worker(LORRY_FAKE_STEP_MS=SLOW_MS)
    busy(crew, first)
    with system_db.transaction() as session:
        operations.drain(session, str(crew.worker_row(first)["id"]))
    assert first.exit_code(within_s=25) == 0
    assert crew.states().get("running", 0) == 0
    crew.worker()
    all_once(crew, jobs)


def test_a_worker_that_is_too_large_drains_and_asks_to_be_started_again(crew: Crew, world: World) -> None:
    world.base()
    worker = crew.worker(wait=False, LORRY_WORKER_RSS_LIMIT_GIB="0.01")
    assert worker.exit_code(within_s=60) == START_ANEW
    assert crew.worker_row(worker)["state"] == "ended"


def test_work_resumes_soon_after_the_broker_is_back(crew: Crew, world: World, settings: Settings) -> None:
    relay = Relay(settings.valkey_port)
    broker_url = relay.url(settings.resolved_broker_url)
    first = submit(world, 10)
    dispatcher = crew.dispatcher(LORRY_BROKER_URL=broker_url)
    worker = crew.worker(LORRY_BROKER_URL=broker_url)
    all_once(crew, first)
    relay.cut()
    more = submit(world, 60)
    eventually(lambda: b"the broker is away" in dispatcher.log.read_bytes())
    eventually(lambda: b"this worker keeps trying" in worker.log.read_bytes())
    beat = crew.worker_row(worker)
    assert beat["state"] == "ready", "a worker without a broker lives"
    relay.mend()
    begun_s = time.monotonic()
    crew.finished(len(first) + 1)
    resumed_s = time.monotonic() - begun_s
    all_once(crew, first + more)
    relay.cut()
    assert resumed_s < 15, resumed_s


def test_outcomes_are_kept_while_the_database_is_away_and_written_when_it_is_back(
    crew: Crew, world: World, settings: Settings
) -> None:
    relay = Relay(settings.pg_port)
    jobs = submit(world, 8)
    crew.dispatcher()
    worker = crew.worker(
        LORRY_DATABASE_URL=relay.url(settings.resolved_database_url), LORRY_LEASE_S="30", LORRY_FAKE_STEP_MS="50"
    )
    eventually(lambda: sum(job.started_at is not None for job in crew.jobs()) == len(jobs))
    relay.cut()
    eventually(lambda: b"outcomes are kept" in worker.log.read_bytes())
    relay.mend()
    all_once(crew, jobs)
    assert {job.fence for job in crew.jobs()} == {1}, "nothing ran twice"
    relay.cut()
    worker.terminate()
    assert worker.exit_code(within_s=30) == 0, "without a database it leaves all the same"


def test_an_adapter_that_never_loads_is_quarantined_and_its_neighbours_are_served(
    crew: Crew, world: World, system_db: Database
) -> None:
    bad = world.adapter("acme", "bad")
    config = Path(bad.path) / "adapter_config.json"
    config.chmod(0o644)
    config.write_text(config.read_text().replace("{", f'{{"{LOAD_FAILS_KEY}": true, ', 1))
    with system_db.transaction() as session:  # the checks would have refused it
        session.execute(text("UPDATE tenant_adapters SET digest = :d"), {"d": adapter_files.digest(Path(bad.path))})
    crew.dispatcher()
    crew.worker()
    for count in range(1, 4):
        world.job("acme", model="bad@1")
        eventually(partial(failed, crew, count))
    crew.finished(len(submit(world, 10)))
    with system_db.transaction() as session:
        state = session.execute(text("SELECT state, state_reason FROM tenant_adapters WHERE name = 'bad'")).one()
    assert state.state == "quarantined"
    assert LOAD_FAILS_KEY in state.state_reason, "the engine's words"
    assert {job.error_code for job in crew.jobs() if job.adapter_id == bad.adapter_id} == {"adapter_load_failed"}
