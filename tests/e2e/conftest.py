"""A crew per test: real PostgreSQL, real Valkey, real Celery; the engine without a model by default."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from registry.db import Database
from registry.settings import Settings
from tests.e2e.crew import Crew


@pytest.fixture
def crew(settings: Settings, system_db: Database, broker_url: str, tmp_path: Path) -> Iterator[Crew]:
    """Quick beats, so that a dead worker is seen in seconds."""
    redis.Redis.from_url(broker_url).flushall()
    made = Crew(
        settings,
        system_db,
        tmp_path,
        LORRY_ENGINE="fake",
        LORRY_FAKE_STEP_MS="2",
        LORRY_BEAT_S="0.5",
        LORRY_LEASE_S="3",
        LORRY_RESEND_AFTER_S="1",
        LORRY_DRAIN_GRACE_S="3",
    )
    yield made
    made.close()
