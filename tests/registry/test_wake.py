"""Notices: heard by listeners, coalesced, and harmless when they fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy.orm import Session

from registry import wake
from registry.db import Database
from registry.errors import Unavailable
from registry.wake import CANCELLED, QUEUED, Waker


class SlowDatabase:
    """Holds each transaction at its beginning until let go; fails the first `failures` of them."""

    def __init__(self, real: Database, failures: int = 0) -> None:
        self.real, self.failures = real, failures
        self.entered, self.go = threading.Semaphore(0), threading.Semaphore(0)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        self.entered.release()
        assert self.go.acquire(timeout=10)
        if self.failures:
            self.failures -= 1
            raise Unavailable("away")
        with self.real.transaction() as session:
            yield session


def heard(connection: Any, within_s: float = 0.3, stop_after: int = 99) -> list[str]:
    return [notice.channel for notice in connection.notifies(timeout=within_s, stop_after=stop_after)]


def test_a_listener_hears_its_channels_only(database_url: str, api_db: Database) -> None:
    waker = Waker(api_db)
    with wake.listen(database_url, QUEUED) as listener:
        waker.wake(CANCELLED)
        waker.close()
        second = Waker(api_db)
        second.wake(QUEUED)
        assert heard(listener, within_s=5, stop_after=1) == [QUEUED]
        second.close()
        assert heard(listener) == []


def test_any_number_of_wakes_while_one_is_being_sent_become_one_more(database_url: str, api_db: Database) -> None:
    slow = SlowDatabase(api_db)
    waker = Waker(slow)  # type: ignore[arg-type]
    with wake.listen(database_url, QUEUED, CANCELLED) as listener:
        waker.wake(QUEUED)
        assert slow.entered.acquire(timeout=10)
        for _ in range(1000):
            waker.wake(QUEUED)
        waker.wake(CANCELLED)
        slow.go.release(2)
        waker.close()
        assert sorted(heard(listener)) == [CANCELLED, QUEUED, QUEUED]


def test_a_wake_returns_at_once_whatever_the_database_does(api_db: Database) -> None:
    slow = SlowDatabase(api_db)
    waker = Waker(slow)  # type: ignore[arg-type]
    begun_s = time.monotonic()
    for _ in range(100):
        waker.wake(QUEUED)
    assert time.monotonic() - begun_s < 1
    slow.go.release(10)
    waker.close()


def test_a_lost_notice_does_not_stop_later_ones(database_url: str, api_db: Database) -> None:
    flaky = SlowDatabase(api_db, failures=1)
    waker = Waker(flaky)  # type: ignore[arg-type]
    with wake.listen(database_url, QUEUED) as listener:
        waker.wake(QUEUED)
        assert flaky.entered.acquire(timeout=10)
        flaky.go.release()
        waker.wake(QUEUED)
        assert flaky.entered.acquire(timeout=10)
        flaky.go.release()
        assert heard(listener, within_s=5, stop_after=1) == [QUEUED]
    waker.close()


def test_closing_sends_what_is_due(database_url: str, api_db: Database) -> None:
    waker = Waker(api_db)
    with wake.listen(database_url, QUEUED) as listener:
        waker.wake(QUEUED)
        waker.close()
        assert heard(listener) == [QUEUED]
