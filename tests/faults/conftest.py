"""One cluster for the short form: dispatchers, two standing workers, and rows that bring their own victims."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.crew import Member
from tests.faults.checker import check
from tests.faults.cluster import QUICK, Cluster


class Standing:
    """The processes that stay: a leader, a hot spare, a worker that carries on while others die."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.dispatchers = [cluster.crew.dispatcher(), cluster.crew.dispatcher()]
        self.survivor: Member = cluster.victim("survivor")

    def supervise(self) -> int | None:
        """Start the worker again if it has ended, as its supervisor would; its exit status, None if it lives."""
        code = self.survivor.process.poll()
        if code is not None:
            self.survivor = self.cluster.victim("survivor")
        return code


@pytest.fixture(scope="session")
def _standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with Cluster(tmp_path_factory.mktemp("faults"), **QUICK) as cluster:
        yield Standing(cluster)


@pytest.fixture
def standing(_standing: Standing) -> Iterator[Standing]:
    """The stack; the checker follows every row, and the survivor must have survived it."""
    yield _standing
    ended = _standing.supervise()
    check(_standing.cluster)
    assert ended is None, "the worker that nobody attacked has ended"


@pytest.fixture
def cluster(standing: Standing) -> Cluster:
    return standing.cluster
