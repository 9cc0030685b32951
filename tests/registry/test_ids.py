"""Identifiers: sortable by time, one form on the wire, and names that fit queues and URLs."""

from __future__ import annotations

import time
import uuid

import pytest

from registry import ids
from registry.errors import NotFound


def test_new_ids_are_version_7_and_sort_by_time() -> None:
    made = []
    for _ in range(5):
        made.append(ids.new_id())
        time.sleep(0.002)  # a millisecond is the clock's step
    assert {(value.version, value.variant) for value in made} == {(7, uuid.RFC_4122)}
    assert made == sorted(made)
    assert len({ids.new_id() for _ in range(10_000)}) == 10_000


def test_an_id_survives_the_wire() -> None:
    value = ids.new_id()
    assert ids.from_wire("job", ids.to_wire("job", value)) == value


def test_files_are_written_with_a_dash_as_openai_does() -> None:
    value = ids.new_id()
    assert ids.to_wire("file", value) == f"file-{value.hex}"
    assert ids.from_wire("file", ids.to_wire("file", value)) == value
    with pytest.raises(NotFound):
        ids.from_wire("file", f"file_{value.hex}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job_",
        "job_1",
        "job_" + "A" * 32,
        "job_" + "g" * 32,
        "key_" + "0" * 32,
        "job_" + "0" * 33,
        "job_" + "0" * 32 + "\n",
        " job_" + "0" * 32,
        "job_" + "٠" * 32,
        str(uuid.uuid4()),
    ],
)
def test_a_malformed_id_names_nothing(text: str) -> None:
    with pytest.raises(NotFound, match="check the id"):
        ids.from_wire("job", text)
