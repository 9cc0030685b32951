"""Batches for these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from registry.db import Database
from registry.settings import Settings
from tests.registry.batches.batch_rig import Batches
from tests.registry.batches.submissions import Submissions
from tests.world import World


@pytest.fixture
def batches(world: World) -> Batches:
    return Batches(world)


@pytest.fixture
def submissions(world: World, api_db: Database, settings: Settings) -> Iterator[Submissions]:
    made = Submissions(world, api_db, settings)
    yield made
    made.close()
