"""Checked lines on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.batches.spool import Spool, Spooled
from registry.ids import new_id

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(lines=st.lists(st.tuples(st.integers(1, 2**31), st.integers(0, 999), TEXT, TEXT, st.binary()), max_size=5))
def test_lines_come_back_as_they_were_as_often_as_asked(
    tmp_path_factory: pytest.TempPathFactory, lines: list[tuple[int, int, str, str, bytes]]
) -> None:
    spool = Spool(tmp_path_factory.getbasetemp())
    try:
        added = [Spooled(new_id(), *line) for line in lines]
        for spooled in added:
            spool.add(spooled)
        assert list(spool) == added == list(spool)
    finally:
        spool.close()


def test_the_file_has_no_name_so_that_a_crash_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "new")
    spool.add(Spooled(new_id(), 1, 0, "m", "c", b"x" * 2**21))
    assert list((tmp_path / "new").iterdir()) == []
    spool.close()
