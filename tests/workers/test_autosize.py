"""`auto` at a worker's start: what it comes to, and that it reaches the engine and the worker's row."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from registry import base_models, deployments
from registry.db import Database
from registry.errors import ConfigurationError
from registry.models import Worker
from registry.settings import Settings
from tests.world import World
from workers import autosize, gpu


def test_numbers_that_the_operator_gave_are_kept(world: World, settings: Settings, system_db: Database) -> None:
    world.base("Tiny")

    served = gpu.assignment(system_db, settings, "Tiny")

    assert (served.places.max_loras, served.places.max_cpu_loras, served.places.sums) == (2, 8, None)


def test_auto_reaches_the_engine_and_the_workers_row(world: World, settings: Settings, system_db: Database) -> None:
    world.base("Tiny", max_loras=None, max_cpu_loras=None)
    chosen = settings.model_copy(update={"engine": "fake", "device_memory_gib": 8.0, "kv_cache_gib": 0.1})
    served = gpu.assignment(system_db, chosen, "Tiny")
    worker = gpu.GpuWorker(chosen, "w", served)
    try:
        with system_db.transaction() as session:
            sums = session.scalars(select(Worker.sizing)).one()
    finally:
        worker.close()

    assert served.places.max_loras == sums["max_loras"] == 256
    assert sums["max_cpu_loras"] > 256
    assert "slots that fit" in sums["arithmetic"][1]


def test_as_many_slots_as_adapters_and_a_few_more(world: World, settings: Settings, system_db: Database) -> None:
    world.base("Tiny", max_loras=None, max_cpu_loras=None)
    world.tenant("acme")
    world.adapter("acme", "tickets")
    chosen = settings.model_copy(update={"device_memory_gib": 8.0, "kv_cache_gib": 0.1})

    sums = gpu.assignment(system_db, chosen, "Tiny").places.sums

    assert sums is not None
    assert sums["max_loras"] == 8
    assert sums["never_swaps"]


def test_no_room_stops_the_start_with_the_sum(world: World, settings: Settings, system_db: Database) -> None:
    world.base("Tiny", max_loras=None, max_cpu_loras=None)
    chosen = settings.model_copy(update={"device_memory_gib": 0.01})

    with system_db.transaction() as session:
        deployment = deployments.get(session, "Tiny")
        base = base_models.get(session, "Tiny")
        with pytest.raises(ConfigurationError, match=r"no room .* usable"):
            autosize.places(session, chosen, deployment, base)
