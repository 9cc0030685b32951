"""The waiting room: queues by adapter, in turn; and what a swap's jobs share."""

from __future__ import annotations

import uuid

from tests.workers.held_jobs import held_job
from workers.generation import Swap
from workers.held import SwapRecord, WaitingRoom
from workers.policy import BASE


def test_jobs_of_an_adapter_queue_by_turn_however_they_come() -> None:
    room = WaitingRoom()
    third, first, second = (held_job(1, turn) for turn in (30, 10, 20))
    for job in (third, first, second):
        room.add(job)
    assert room.of_adapter(1) == [first, second, third]
    assert room.next_turns() == {1: 10}
    assert len(room) == len(list(room)) == 3


def test_heads_are_the_oldest_of_each_adapter_and_say_how_long_the_adapter_waits() -> None:
    room = WaitingRoom()
    base, first, second = held_job(BASE, 5, held_at_s=3.0), held_job(1, 6, held_at_s=1.0), held_job(1, 7, held_at_s=2.0)
    for job in (base, first, second):
        room.add(job)
    room.take(first.job_id)
    heads = [(head.job, head.adapter, head.turn, head.waited_s, head.alone) for head in room.heads(4.0)]
    assert heads == [(base.job_id, BASE, 5, 1.0, False), (second.job_id, 1, 7, 3.0, False)]


def test_an_adapter_that_lost_its_slot_waits_anew() -> None:
    room = WaitingRoom()
    room.add(held_job(1, 1, held_at_s=1.0))
    room.lost_slot(1, 9.0)
    room.lost_slot(2, 9.0)
    assert [head.waited_s for head in room.heads(10.0)] == [1.0]


def test_an_adapter_whose_jobs_are_all_gone_starts_afresh() -> None:
    room = WaitingRoom()
    early, late = held_job(1, 1, held_at_s=1.0), held_job(1, 2, held_at_s=8.0)
    room.add(early)
    assert room.take(early.job_id) is early
    room.add(late)
    assert [head.waited_s for head in room.heads(10.0)] == [2.0]


def test_what_does_not_wait_cannot_be_taken() -> None:
    assert WaitingRoom().take(uuid.uuid4()) is None


def test_a_job_with_two_crashes_or_a_corrupted_output_is_to_run_alone() -> None:
    crashed, corrupted, sound = held_job(crashes=2), held_job(), held_job(crashes=1)
    corrupted.corruptions = 1
    assert [job.alone for job in (crashed, corrupted, sound)] == [True, True, False]


def test_jobs_share_a_swap_and_each_pays_its_own_wait() -> None:
    room = WaitingRoom()
    before, during, other = held_job(1, 1, held_at_s=1.0), held_job(1, 2, held_at_s=5.0), held_job(2, 3)
    for job in (before, during, other):
        room.add(job)
    record = SwapRecord(Swap("cold", 1.0, 1.0, (), 4.0, 6.0), 0.0, None)
    room.share(record, 1, begun_s=4.0, now_s=6.0)
    assert (before.swap_wait_ms, during.swap_wait_ms, record.shared_by) == (2000.0, 1000.0, 2)
    assert before.swap is during.swap is record
    assert other.swap is None


def test_the_engine_knows_an_adapter_by_its_waiting_jobs() -> None:
    room = WaitingRoom()
    job = held_job(4, 1, path="/files")
    room.add(job)
    assert room.adapter_ref(4)[0] == job.generation.adapter
