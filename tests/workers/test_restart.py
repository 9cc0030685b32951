"""An engine that died: started again, up to three times, while its worker takes no jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable

from registry.errors import EngineStartFailed
from tests.e2e.crew import eventually
from workers.restart import ENGINE_RESTARTS, Restart


class Engine:
    """Starts as often as it is told to refuse, and then runs."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals = refusals
        self.starts = 0
        self.may_start = threading.Event()
        self.may_start.set()

    def start(self) -> None:
        self.starts += 1
        assert self.may_start.wait(10)
        if self.starts <= self.refusals:
            raise EngineStartFailed("no memory")

    def close(self) -> None:
        pass


def make(engine: Engine, resume: Callable[[], None] = lambda: None) -> tuple[Restart, list[bool]]:
    """And what was said of taking jobs, in order."""
    served: list[bool] = []
    return Restart(engine, resume, served.append), served


def test_no_jobs_are_taken_from_the_death_until_the_engine_runs_again() -> None:
    engine = Engine()
    engine.may_start.clear()
    restart, served = make(engine)
    restart.begin()
    assert restart.under_way.is_set()
    eventually(lambda: engine.starts)
    assert served == [False]
    engine.may_start.set()
    eventually(lambda: served == [False, True])
    assert not restart.under_way.is_set()


def test_a_start_that_is_refused_is_tried_again() -> None:
    engine = Engine(refusals=ENGINE_RESTARTS - 1)
    restart, served = make(engine)
    restart.begin()
    eventually(lambda: served == [False, True])
    assert (engine.starts, restart.failed.is_set()) == (ENGINE_RESTARTS, False)


def test_an_engine_that_never_starts_is_given_up_and_gets_no_jobs() -> None:
    engine = Engine(refusals=ENGINE_RESTARTS)
    restart, served = make(engine)
    restart.begin()
    assert restart.failed.wait(10)
    assert (engine.starts, served) == (ENGINE_RESTARTS, [False])


def test_an_engine_that_dies_as_soon_as_it_runs_gets_no_jobs_by_its_earlier_start() -> None:
    """The second death comes before the first start has let the jobs in."""
    engine, deaths = Engine(), iter([True, False])

    def resume() -> None:
        if next(deaths):
            engine.may_start.clear()
            restart.begin()

    restart, served = make(engine, resume)
    restart.begin()
    eventually(lambda: engine.starts == 2)
    assert True not in served
    engine.may_start.set()
    eventually(lambda: served[-1])
