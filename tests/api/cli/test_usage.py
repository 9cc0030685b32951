"""`lorry usage`."""

from __future__ import annotations

import csv
import io
import json

from tests.api.cli.conftest import Lorry
from tests.registry.test_usage import run
from tests.world import World


def test_this_month_by_day_and_version_for_people_programs_and_tables(lorry: Lorry, world: World) -> None:
    world.adapter()
    run(world, "tickets", "Tiny")
    rows = json.loads(lorry("usage", "acme", "--json").out)
    assert [(row["adapter"], row["succeeded"], row["output_tokens"]) for row in rows] == [
        (None, 1, 5),
        ("tickets", 1, 5),
    ]
    assert "tickets" in lorry("usage", "acme").out
    table = list(csv.DictReader(io.StringIO(lorry("usage", "acme", "--csv").out)))
    assert [row["day"] for row in table] == [row["day"] for row in rows]


def test_another_month_is_empty_and_what_is_none_is_refused(lorry: Lorry, world: World) -> None:
    world.tenant()
    assert "Nothing used." in lorry("usage", "acme", "--month", "2020-01").err
    assert "[invalid_value]" in lorry("usage", "acme", "--month", "soon").err
    assert "[not_found]" in lorry("usage", "nobody").err
