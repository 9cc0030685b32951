"""The grouped writer against real PostgreSQL: few transactions, nothing thrown away, one bad write harms no other."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, text

from registry import presence, transitions
from registry.db import SYSTEM_ROLE, Database
from registry.settings import Settings
from registry.transitions import ClaimedAdapter, Outcome
from tests.relay import Relay
from tests.world import World
from workers.settle import Writer

WITHIN_S = 15


class Gate:
    """A worker's id that the writer gets only when the gate is open: what is put meanwhile becomes one group."""

    def __init__(self, worker: uuid.UUID) -> None:
        self._worker, self._open, self.waiting = worker, threading.Event(), threading.Event()

    def __call__(self) -> uuid.UUID:
        self.waiting.set()
        assert self._open.wait(WITHIN_S)
        return self._worker

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def writing(system_db: Database) -> Iterator[Callable[..., Writer]]:
    made: list[Writer] = []

    def make(worker: Callable[[], uuid.UUID] | uuid.UUID, database: Database = system_db) -> Writer:
        made.append(Writer(database, "Tiny", worker if callable(worker) else lambda: worker))
        return made[-1]

    yield make
    for writer in made:
        writer.close()


@pytest.fixture
def commits(system_db: Database) -> Iterator[list[object]]:
    """One entry for each commit."""
    seen: list[object] = []

    def count(connection: object) -> None:
        seen.append(connection)

    event.listen(system_db.engine, "commit", count)
    yield seen
    event.remove(system_db.engine, "commit", count)


def done(job_id: uuid.UUID, fence: int = 1, **changes: Any) -> Outcome:
    return Outcome(job_id, fence, "succeeded", text="요약 🙂", finish_reason="stop", timing={}, **changes)


def running(world: World, count: int) -> list[uuid.UUID]:
    """Jobs that a worker has claimed: fence 1."""
    jobs = [world.job() for _ in range(count)]
    assert len(world.claim(world.worker(), world.pick())) == count
    return jobs


def answers(futures: list[Future[Any]]) -> list[Any]:
    wait(futures, WITHIN_S)
    return [future.result(0) for future in futures]


def test_claims_that_come_together_are_one_transaction(
    world: World, writing: Callable[..., Writer], commits: list[object]
) -> None:
    jobs = [world.job() for _ in range(40)]
    gate = Gate(world.worker())
    world.pick()
    writer = writing(gate)
    first = writer.claim(jobs[0])
    assert gate.waiting.wait(WITHIN_S)
    rest = [writer.claim(job) for job in jobs[1:]]
    before = len(commits)
    gate.open()
    claimed = answers([first, *rest])
    assert [job.job_id for job in claimed] == jobs
    assert len(commits) - before == 2


def test_writes_of_all_kinds_share_two_transactions(
    world: World, writing: Callable[..., Writer], commits: list[object]
) -> None:
    jobs = running(world, 30)
    gate = Gate(world.worker())
    writer = writing(gate)
    writer.claim(uuid.uuid4())
    assert gate.waiting.wait(WITHIN_S)
    writes: list[Future[Any]] = [writer.settle(done(job)) for job in jobs[:10]]
    writes += [writer.hand_back(job, 1) for job in jobs[10:15]]
    writes += [writer.hand_back(job, 1, "attempt") for job in jobs[15:20]]
    writes += [writer.start(job, 1) for job in jobs[20:]]
    before = len(commits)
    gate.open()
    assert answers(writes) == [True] * 30
    assert len(commits) - before == 1 + 2
    assert [world.state(job) for job in jobs] == ["succeeded"] * 10 + ["queued"] * 10 + ["running"] * 10
    assert [world.row(job)["attempts"] for job in jobs[10:20]] == [0] * 5 + [1] * 5
    assert world.row(jobs[20])["started_at"] is not None


def test_a_job_that_is_not_to_be_had_answers_none(world: World, writing: Callable[..., Writer]) -> None:
    queued = world.job()
    writer = writing(world.worker())
    assert answers([writer.claim(queued), writer.claim(uuid.uuid4())]) == [None, None]


def test_two_messages_of_one_job_in_a_group_claim_it_once(world: World, writing: Callable[..., Writer]) -> None:
    job = world.job()
    world.pick()
    gate = Gate(world.worker())
    writer = writing(gate)
    first = writer.claim(uuid.uuid4())
    assert gate.waiting.wait(WITHIN_S)
    both = [writer.claim(job), writer.claim(job)]
    gate.open()
    assert first.result(WITHIN_S) is None
    answers = [claim.result(WITHIN_S) for claim in both]
    assert [answer is not None for answer in answers] == [True, False]


def test_a_worker_that_was_declared_dead_claims_nothing(
    world: World, system_db: Database, writing: Callable[..., Writer]
) -> None:
    job, worker = world.job(), world.worker()
    world.pick()
    with system_db.transaction() as session:
        presence.become(session, worker, "ended")
    assert answers([writing(worker).claim(job)]) == [None]
    assert world.state(job) == "dispatched"


def test_a_late_write_is_fenced_off_and_changes_nothing(world: World, writing: Callable[..., Writer]) -> None:
    job = running(world, 1)[0]
    writer = writing(world.worker())
    late: list[Future[Any]] = [writer.settle(done(job, fence=0)), writer.start(job, 0), writer.hand_back(job, 0)]
    assert answers(late) == [False] * 3
    assert (world.state(job), world.row(job)["started_at"]) == ("running", None)


@pytest.mark.parametrize("bad", [{"prompt_tokens": 2**40}, {"error_code": object()}])
def test_an_outcome_that_is_refused_spoils_only_itself(
    world: World, writing: Callable[..., Writer], bad: dict[str, Any]
) -> None:
    jobs = running(world, 4)
    gate = Gate(world.worker())
    writer = writing(gate)
    writer.claim(uuid.uuid4())
    assert gate.waiting.wait(WITHIN_S)
    writes = [writer.settle(done(job, **(bad if job == jobs[1] else {}))) for job in jobs]
    gate.open()
    assert answers(writes) == [True, None, True, True]
    assert [world.state(job) for job in jobs] == ["succeeded", "running", "succeeded", "succeeded"]
    assert answers([writer.settle(done(jobs[1]))]) == [True], "the writer goes on"


def test_a_defect_in_one_kind_of_write_stops_neither_the_others_nor_the_writer(
    world: World, writing: Callable[..., Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = running(world, 2)
    writer = writing(world.worker())
    with monkeypatch.context() as defective:
        defective.setattr(transitions, "hand_back", lambda *_, **__: dict[str, None]()["a defect"])
        writes = [writer.hand_back(job, 1), writer.settle(done(other))]
        assert answers(writes) == [None, True]
    assert answers([writer.hand_back(job, 1)]) == [True]


def test_outcomes_are_kept_while_the_database_is_away(
    world: World, settings: Settings, writing: Callable[..., Writer]
) -> None:
    jobs = running(world, 20)
    relay = Relay(settings.pg_port)
    database = Database(relay.url(settings.resolved_database_url), SYSTEM_ROLE, pool_size=1)
    writer = writing(world.worker(), database)
    assert answers([writer.start(job, 1) for job in jobs]) == [True] * 20
    relay.cut()
    writes = [writer.settle(done(job)) for job in jobs[:10]]
    assert not wait(writes, 0.4).done, "nothing can have been written"
    writes += [writer.settle(done(job)) for job in jobs[10:]]
    relay.mend()
    assert answers(writes) == [True] * 20
    assert {world.state(job) for job in jobs} == {"succeeded"}
    writer.close()
    database.close()
    relay.cut()


def test_a_connection_lost_in_mid_write_is_replaced(
    world: World, settings: Settings, writing: Callable[..., Writer], superuser: psycopg.Connection[Any]
) -> None:
    job, other = running(world, 2)
    database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=1)
    database.engine.pool._pre_ping = False  # the loss is to be met by the write itself
    writer = writing(world.worker(), database)
    assert answers([writer.settle(done(job))]) == [True]
    with database.transaction() as session:
        pid = session.scalar(text("SELECT pg_backend_pid()"))
    assert superuser.execute("SELECT pg_terminate_backend(%s, 5000)", [pid]).fetchone() == (True,)
    assert answers([writer.settle(done(other))]) == [True]
    assert world.state(other) == "succeeded"
    writer.close()
    database.close()


def test_closing_writes_what_is_there(world: World, writing: Callable[..., Writer]) -> None:
    jobs = running(world, 5)
    writer = writing(world.worker())
    writes = [writer.settle(done(job)) for job in jobs]
    writer.close()
    assert [future.result(0) for future in writes] == [True] * 5


def test_a_quarantined_adapters_open_jobs_fail_and_nobody_elses(world: World, writing: Callable[..., Writer]) -> None:
    bad, good = world.adapter("acme", "bad"), world.adapter("acme", "good")
    doomed, kept = world.job("acme", model="bad"), world.job("acme", model="good")
    writer = writing(Gate(world.worker()))
    adapter = ClaimedAdapter(bad.adapter_id, "bad", 1, bad.path, bad.digest, "ready")
    assert answers([writer.quarantine(doomed, "acme", adapter, "It overflows.")]) == [True]
    assert (world.state(doomed), world.state(kept)) == ("failed", "queued")
    assert world.row(doomed)["error_code"] == "adapter_unavailable"
    assert good.state == "ready"


def test_reasons_for_waiting_are_kept_on_the_jobs_that_still_wait(world: World, writing: Callable[..., Writer]) -> None:
    waiting, fenced = running(world, 2)
    writer = writing(Gate(world.worker()))
    writer.explain(waiting, 1, "older jobs go first")
    writer.explain(fenced, 7, "too late")
    writer.close()
    assert [world.row(job)["waiting_reason"] for job in (waiting, fenced)] == ["older jobs go first", None]
