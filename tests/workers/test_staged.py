"""An adapter read on a thread of its own."""

from __future__ import annotations

import threading

import pytest

from workers.probe.staged import Staged

WITHIN_S = 5.0


def test_the_result_waits_for_the_reader_and_says_what_it_took() -> None:
    gate = threading.Event()
    staged = Staged(lambda: gate.wait(WITHIN_S))
    assert not staged.is_done
    gate.set()
    adapter, took_ms = staged.result()
    assert adapter is True
    assert took_ms > 0
    assert staged.is_done


def test_what_the_reader_raised_is_raised_where_the_result_is_wanted() -> None:
    def reads() -> None:
        raise OSError("no such folder")

    staged = Staged(reads)
    for _ in range(2):
        with pytest.raises(OSError, match="no such folder"):
            staged.result()
