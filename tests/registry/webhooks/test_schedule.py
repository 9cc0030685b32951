"""When a delivery is tried again."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.webhooks.schedule import Answer, Verdict, judge

HOUR = 3600
SCHEDULE = [5, 300, 1800, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR]


def failed(code: int | None = 500, retry_after_s: float | None = None) -> Answer:
    return Answer(code, None if code else "timeout", 1.0, retry_after_s)


def test_ten_attempts_over_three_days_then_the_dead_letter() -> None:
    verdicts = [judge(failed(), failures, 0.0) for failures in range(10)]
    assert [verdict.wait_s for verdict in verdicts[:-1]] == SCHEDULE
    assert {verdict.state for verdict in verdicts[:-1]} == {"pending"}
    assert verdicts[-1] == Verdict("exhausted")
    assert sum(SCHEDULE) == 75 * HOUR + 35 * 60 + 5


@given(st.integers(0, 8), st.floats(-1, 1))
def test_the_jitter_stays_within_a_fifth(failures: int, luck: float) -> None:
    wait_s = judge(failed(), failures, luck).wait_s
    assert 0.8 * SCHEDULE[failures] <= wait_s <= 1.2 * SCHEDULE[failures]


@pytest.mark.parametrize(("asked_s", "least_s"), [(120, 120), (1, 4), (10 * 24 * HOUR, 24 * HOUR)])
def test_a_receivers_wish_lengthens_the_wait_up_to_a_day(asked_s: float, least_s: float) -> None:
    wait_s = judge(failed(429, asked_s), 0, -1.0).wait_s
    assert wait_s == max(least_s, 4)


@pytest.mark.parametrize("code", [200, 201, 204, 299])
def test_any_2xx_delivers(code: int) -> None:
    assert judge(Answer(code, None, 1.0), 3, 0.0) == Verdict("delivered")


@pytest.mark.parametrize("code", [100, 199, 300, 301, 302, 304, 307, 400, 404, 429, 500, 599, None])
def test_nothing_else_does(code: int | None) -> None:
    assert judge(failed(code), 0, 0.0).state == "pending"


def test_gone_ends_it_at_once() -> None:
    assert [judge(failed(410), failures, 0.0) for failures in (0, 5, 9)] == [Verdict("exhausted", gone=True)] * 3


def test_waits_never_shorten() -> None:
    waits = [judge(failed(), failures, 0.0).wait_s for failures in range(9)]
    assert all(first <= second for first, second in itertools.pairwise(waits))
