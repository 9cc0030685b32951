"""What the policy promises, whatever arrives: held by random stories in virtual time.

`LORRY_HYPOTHESIS=long` plays 10,000 of each instead of 100.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.stories import stories
from tests.workers.policy_simulation import TICK_S, Arrival, Simulation
from workers.policy import BASE, Rules


def quarters(lowest: int, highest: int) -> st.SearchStrategy[float]:
    return st.integers(lowest, highest).map(lambda number: number * TICK_S)


@st.composite
def rules(draw: st.DrawFn, max_live: st.SearchStrategy[int], grouping: int = 0) -> tuple[Rules, float]:
    """Rules, and a load time with which the other loads of a round fit between the two waits. `grouping`: the least."""
    max_loras = draw(st.integers(1, 4))
    load_s = draw(quarters(1, 3))
    grouping_s = draw(quarters(grouping, 8))
    slack_s = (max_loras - 1) * load_s
    return Rules(draw(max_live), max_loras, grouping_s, grouping_s + slack_s + draw(quarters(1, 12))), load_s


def arrivals(**changes: st.SearchStrategy[object]) -> st.SearchStrategy[list[Arrival]]:
    fields = {
        "at_s": quarters(0, 80),
        "adapter": st.integers(BASE, 8),
        "runs_s": quarters(1, 28),
        "cancelled_after_s": st.none() | quarters(0, 40),
        "late": st.integers(0, 3),
    }
    return st.lists(st.builds(Arrival, **{**fields, **changes}), min_size=1, max_size=60)


BAD_ADAPTERS = st.frozensets(st.integers(1, 8), max_size=2)


@stories
@given(rules(st.integers(1, 6)), arrivals(alone=st.integers(0, 9).map(lambda n: n == 0)), BAD_ADAPTERS)
def test_no_slot_is_overfilled_nobody_waits_who_could_run_and_all_end(
    ruled: tuple[Rules, float], story: list[Arrival], bad: frozenset[int]
) -> None:
    """The simulation itself checks every moment, and that the story comes to its end."""
    simulation = Simulation(*ruled, bad_adapters=bad).run(story)
    cancelled = sum(arrival.cancelled_after_s is not None for arrival in story)
    lost = sum(arrival.adapter in bad for arrival in story)
    assert len(simulation.admitted) >= len(story) - cancelled - lost


@stories
@given(rules(st.integers(1, 6)), arrivals(), BAD_ADAPTERS)
def test_an_adapter_without_a_slot_is_served_within_the_bound(
    ruled: tuple[Rules, float], story: list[Arrival], bad: frozenset[int]
) -> None:
    simulation = Simulation(*ruled, bad_adapters=bad).run(story)
    longest_s = max(arrival.runs_s for arrival in story)
    for wait in simulation.adapter_waits:
        assert wait.waited_s <= simulation.bound_s(wait, longest_s)


@stories
@given(rules(st.integers(1, 6)), arrivals(output_tokens=st.integers(1, 8)), st.integers(2, 24), BAD_ADAPTERS)
def test_an_engine_short_of_tokens_keeps_room_for_who_has_waited_too_long(
    ruled: tuple[Rules, float], story: list[Arrival], kv_tokens: int, bad: frozenset[int]
) -> None:
    """Short of tokens an adapter may wait for a running request twice in its round: for its slot, then for room."""
    simulation = Simulation(*ruled, bad_adapters=bad, kv_tokens=kv_tokens).run(story)
    longest_s = max(arrival.runs_s for arrival in story)
    most = min(kv_tokens, 1 + max(arrival.output_tokens for arrival in story))
    for wait in simulation.adapter_waits:
        assert wait.waited_s <= simulation.bound_s(wait, 2 * longest_s, most)


@stories
@given(rules(st.just(1000), grouping=1), arrivals(), BAD_ADAPTERS)
def test_every_job_is_admitted_within_the_bound_when_the_engine_has_places(
    ruled: tuple[Rules, float], story: list[Arrival], bad: frozenset[int]
) -> None:
    """With `grouping_max_wait_s` 0 an adapter serves one job and gives way: then it holds for the first job only."""
    simulation = Simulation(*ruled, bad_adapters=bad).run(story)
    longest_s = max(arrival.runs_s for arrival in story)
    for wait in simulation.job_waits:
        assert wait.waited_s <= simulation.bound_s(wait, longest_s)


@stories
@given(rules(st.integers(2, 6)), st.integers(5, 12))
def test_streams_that_never_end_starve_nobody(ruled: tuple[Rules, float], adapters: int) -> None:
    """Every slot's adapter always has work; each newcomer is served in its round, and rounds come again and again."""
    simulation = Simulation(*ruled).run(
        Arrival(step * 0.5, adapter, 2.0) for step in range(16) for adapter in range(1, adapters + 1)
    )
    assert {job.adapter_id for job in simulation.admitted} == set(range(1, adapters + 1))
    for wait in simulation.adapter_waits:
        assert wait.waited_s <= simulation.bound_s(wait, 2.0)
