"""When a worker should leave by itself: pure looks, and the thread that makes them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery

from registry import ids, queues
from registry.errors import EngineDead
from registry.settings import Settings
from tests.workers.planner_rig import until
from tests.world import World
from workers import family, watchdog
from workers.leaving import ORDERLY, START_ANEW
from workers.watchdog import Pulse, Signs, Traffic, Watchdog, Wedge


def looks(wedge: Wedge, *seen: tuple[float, int]) -> list[bool]:
    """The answers to looks at (second, messages in the queue)."""
    return [wedge.is_stuck(now_s, waiting) for now_s, waiting in seen]


def test_jobs_that_wait_for_long_beside_free_threads_prove_a_wedge() -> None:
    wedge = Wedge(Traffic(8), 60)
    assert looks(wedge, *((s, 3) for s in range(0, 85, 5))).index(True) in (13, 14)


def test_a_job_taken_or_let_go_proves_the_contrary() -> None:
    traffic = Traffic(8)
    wedge = Wedge(traffic, 20)
    for second in range(0, 100, 5):
        assert not wedge.is_stuck(second, 3)
        with traffic.job():
            pass


def test_full_hands_an_empty_queue_and_a_broker_that_hung_prove_nothing() -> None:
    traffic = Traffic(1)
    with traffic.job():
        assert not any(looks(Wedge(traffic, 20), *((s, 3) for s in range(0, 100, 5))))
    assert not any(looks(Wedge(traffic, 20), *((s, 0) for s in range(0, 100, 5))))
    assert not any(looks(Wedge(traffic, 20), *((s, 3) for s in range(0, 1000, 40))))


def answered() -> Future[None]:
    """An engine's prompt answer."""
    answer: Future[None] = Future()
    answer.set_result(None)
    return answer


def test_an_engine_that_answers_or_says_that_it_is_dead_is_not_lost() -> None:
    def refused() -> Future[None]:
        answer: Future[None] = Future()
        answer.set_exception(EngineDead("it died"))
        return answer

    for call in (answered, refused):
        pulse = Pulse(call, 20)
        assert not any(pulse.is_lost(second) for second in range(0, 200, 5))


def test_an_engine_that_owes_an_answer_for_long_is_lost_and_one_that_was_slow_is_not() -> None:
    calls: list[Future[None]] = []

    def call() -> Future[None]:
        calls.append(Future())
        return calls[-1]

    pulse = Pulse(call, 20)
    assert not any(pulse.is_lost(second) for second in (0, 5, 10, 15))
    calls[-1].set_result(None)
    assert [pulse.is_lost(second) for second in (20, 25, 30, 35, 40, 45)] == [False] * 4 + [True, False]
    assert len(calls) == 3, "after that it is called anew"


def test_a_process_that_slept_itself_does_not_blame_its_engine() -> None:
    pulse = Pulse(Future, 20)
    assert [pulse.is_lost(second) for second in (0, 5, 500, 505, 515)] == [False] * 5


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    monkeypatch.setattr(watchdog, "LOOK_S", 0.02)
    return []


def watch(settings: Settings, celery: Celery, left: list[tuple[int, str]], signs: Signs, **changes: Any) -> None:
    chosen = settings.model_copy(update=changes)
    Watchdog(chosen, celery, "Tiny", signs, lambda code, why: left.append((code, why)))


def signs(**shown: Any) -> Signs:
    """Of a worker that is well, but for what is said."""
    healthy = Signs(
        Traffic(8),
        asked=threading.Event(),
        failed=threading.Event(),
        starting=threading.Event(),
        call=answered,
        kill=lambda: None,
        idle_with_jobs=lambda: False,
    )
    return replace(healthy, **shown)


def test_an_operators_wish_and_a_failed_engine_are_seen_at_once(
    settings: Settings, celery: Celery, left: list[tuple[int, str]]
) -> None:
    drained, broken = signs(), signs()
    watch(settings, celery, left, drained)
    watch(settings, celery, left, broken)
    drained.asked.set()
    until(lambda: left)
    broken.failed.set()
    until(lambda: len(left) == 2)
    assert [code for code, _ in left] == [ORDERLY, START_ANEW]


def test_a_consumer_that_takes_nothing_from_its_queue_is_noticed(
    settings: Settings, celery: Celery, left: list[tuple[int, str]], world: World
) -> None:
    queues.send_jobs(celery, "Tiny", [ids.to_wire("job", world.job())])
    watch(settings, celery, left, signs(), wedged_after_s=0.4)
    until(lambda: left)
    assert left[0][0] == START_ANEW
    assert "queue" in left[0][1]


def test_a_consumer_that_takes_nothing_while_its_engine_starts_is_not_stuck(
    settings: Settings, celery: Celery, left: list[tuple[int, str]], world: World
) -> None:
    queues.send_jobs(celery, "Tiny", [ids.to_wire("job", world.job())])
    looks = iter(range(100))
    busy = signs(idle_with_jobs=lambda: next(looks) < 0)
    busy.starting.set()
    watch(settings, celery, left, busy, wedged_after_s=0.4)
    until(lambda: next(looks) > 8)
    assert not left
    busy.starting.clear()
    until(lambda: left)
    assert left[0][0] == START_ANEW


def test_jobs_that_wait_here_for_an_idle_engine_are_noticed_with_all_hands_full_too(
    settings: Settings, celery: Celery, left: list[tuple[int, str]]
) -> None:
    traffic = Traffic(1)
    with traffic.job():
        watch(settings, celery, left, signs(traffic=traffic, idle_with_jobs=lambda: True), wedged_after_s=0.4)
        until(lambda: left)
    assert left[0][0] == START_ANEW


def test_a_look_that_breaks_off_is_not_the_last(
    settings: Settings, celery: Celery, left: list[tuple[int, str]]
) -> None:
    called = threading.Event()

    def stumble() -> Future[None]:
        called.set()
        raise KeyError("a defect")

    broken = signs(call=stumble)
    watch(settings, celery, left, broken, wedged_after_s=0.4)
    assert called.wait(10)
    broken.asked.set()
    until(lambda: left)
    assert left[0][0] == ORDERLY


def test_an_engine_that_hangs_is_killed(settings: Settings, celery: Celery, left: list[tuple[int, str]]) -> None:
    killed = threading.Event()
    watch(settings, celery, left, signs(call=Future, kill=killed.set), wedged_after_s=0.4)
    assert killed.wait(10)
    assert not left


def test_memory_beyond_the_limit_is_noticed(settings: Settings, celery: Celery, left: list[tuple[int, str]]) -> None:
    watch(settings, celery, left, signs(), worker_rss_limit_gib=0.001)
    until(lambda: left)
    assert (left[0][0], "memory" in left[0][1]) == (START_ANEW, True)


def test_a_family_counts_what_is_below_it() -> None:
    alone = family.resident_bytes(os.getpid())
    child = subprocess.Popen(
        [sys.executable, "-c", "b = bytearray(30_000_000); print(1, flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    assert child.pid in family.descendants(os.getpid())
    assert family.resident_bytes(os.getpid()) - alone > 25_000_000
    child.kill()
    child.wait(10)
