"""The engine's time is billed once, whoever shared it."""

from __future__ import annotations

import random

import pytest

from workers.shares import Shares


def test_a_job_alone_has_all_of_its_time_and_two_share_theirs() -> None:
    shares = Shares()
    first = shares.enter(10.0)
    second = shares.enter(11.0)
    assert shares.leave(13.0, first) == pytest.approx(2000.0)  # 1 s alone, half of 2 s
    assert shares.leave(14.0, second) == pytest.approx(2000.0)  # half of 2 s, 1 s alone


def test_idle_time_is_nobodys_and_all_shares_sum_to_the_busy_time() -> None:
    chance = random.Random(4)
    shares, now_s, busy_s = Shares(), 0.0, 0.0
    marks: list[float] = []
    billed_ms = 0.0
    for _ in range(500):
        step_s = chance.random()
        now_s += step_s
        busy_s += step_s * bool(marks)
        if marks and chance.random() < 0.5:
            billed_ms += shares.leave(now_s, marks.pop(chance.randrange(len(marks))))
        else:
            marks.append(shares.enter(now_s))
    for mark in marks:
        billed_ms += shares.leave(now_s, mark)
    assert billed_ms == pytest.approx(busy_s * 1000)
