"""What a worker is told of the backlog, and that an outage of the registry leaves the last answer standing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from registry.db import Database
from registry.errors import Unavailable
from tests.workers.planner_rig import until
from tests.world import World
from workers import outlook
from workers.outlook import Outlook


class Listener:
    """Stands in for the planner."""

    def __init__(self, known: set[int]) -> None:
        self.known_adapters = frozenset(known)
        self.told: list[Mapping[int, int]] = []

    def foresee(self, backlog: Mapping[int, int]) -> None:
        self.told.append(backlog)


def test_only_adapters_that_the_backlog_needs_are_told(
    world: World, system_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlook, "EVERY_S", 0.01)
    needed, idle = world.adapter("acme", "tickets"), world.adapter("globex", "tickets")
    world.job("acme", model="tickets")
    listener = Listener({needed.adapter_id, idle.adapter_id})
    looking = Outlook(system_db, "Tiny", listener)  # type: ignore[arg-type]
    until(lambda: listener.told)
    looking.close()
    assert listener.told[0] == {needed.adapter_id: 1}


def test_an_outage_is_survived(world: World, system_db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "EVERY_S", 0.01)
    world.base()
    asked = iter(range(1000))

    def fails_at_first(*_: object) -> dict[int, int]:
        if next(asked) < 3:
            raise Unavailable("away")
        return {7: 1}

    monkeypatch.setattr("registry.backlog.next_uses", fails_at_first)
    listener = Listener({7})
    looking = Outlook(system_db, "Tiny", listener)  # type: ignore[arg-type]
    until(lambda: listener.told)
    looking.close()
    assert listener.told[0] == {7: 1}
