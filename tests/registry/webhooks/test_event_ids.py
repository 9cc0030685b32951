"""Event ids on the wire."""

from __future__ import annotations

import re
import uuid

import pytest

from registry.errors import NotFound
from registry.ids import new_id
from registry.webhooks import event_ids


def test_an_id_is_evt_and_26_characters_without_a_dot() -> None:
    assert re.fullmatch(r"evt_[0-9a-z]{26}", event_ids.to_wire(new_id()))


@pytest.mark.parametrize("value", [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.uuid4(), new_id()])
def test_an_id_comes_back(value: uuid.UUID) -> None:
    assert event_ids.from_wire(event_ids.to_wire(value)) == value


def test_ids_sort_as_their_uuids() -> None:
    values = sorted(uuid.uuid4() for _ in range(200))
    assert sorted(map(event_ids.to_wire, values)) == [event_ids.to_wire(value) for value in values]


@pytest.mark.parametrize(
    "text", ["", "evt_", "evt_" + "0" * 25, "evt_" + "0" * 27, "evt_8" + "0" * 25, "evt_" + "u" * 26, "job_" + "0" * 26]
)
def test_anything_else_names_nothing(text: str) -> None:
    with pytest.raises(NotFound):
        event_ids.from_wire(text)
