"""The list of states and arrows, and the words that tenants read for them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from registry.states import ARROWS, OPEN, TERMINAL, State, status_for_tenant

NOW = datetime.now(UTC)


def test_every_state_has_its_arrows_and_terminal_ones_have_none() -> None:
    assert set(ARROWS) == set(State) == OPEN | TERMINAL
    assert {state for state, targets in ARROWS.items() if not targets} == TERMINAL


def test_every_state_can_be_reached_from_queued_and_reaches_an_end() -> None:
    reached, open_ends = {State.QUEUED}, {State.QUEUED}
    while open_ends:
        open_ends = set().union(*(ARROWS[state] for state in open_ends)) - reached
        reached |= open_ends
    assert reached == set(State)
    assert all(ARROWS[state] & TERMINAL for state in OPEN)


@pytest.mark.parametrize("state", sorted(OPEN))
def test_an_open_job_reads_queued_until_the_engine_has_it(state: State) -> None:
    assert status_for_tenant(state, None) == "queued"


def test_a_started_job_reads_running_and_an_ended_one_its_end() -> None:
    assert status_for_tenant(State.RUNNING, NOW) == "running"
    for state in TERMINAL:
        for started_at in (None, NOW):
            assert status_for_tenant(state, started_at) == state.value
