"""What a tenant reads of its use."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from starlette.testclient import TestClient

from tests.registry.test_usage import run
from tests.world import World


def test_use_by_day_and_version_and_how_near_the_limits(
    acme: TestClient, as_tenant: Callable[[str], TestClient], world: World
) -> None:
    adapter = world.adapter()
    run(world, "tickets", "tickets")
    world.job()
    report = acme.get("/v1/usage").json()
    assert report["last"] == f"{datetime.now(UTC):%Y-%m-%d}"
    (row,) = report["data"]
    assert (row["adapter"], row["version"], row["succeeded"], row["input_tokens"]) == ("tickets", 1, 2, 20)
    assert (row["swap_ms"], row["engine_ms"]) == (4.0, 6.0)
    assert report["limits"]["queued_jobs"]["used"] == 3  # the fold has not run
    assert report["limits"]["tokens_per_day"]["used"] == 30
    assert report["limits"]["stored_bytes"]["used"] == adapter.size_bytes
    assert as_tenant("globex").get("/v1/usage").json()["data"] == []


def test_a_month_as_a_table(acme: TestClient, world: World) -> None:
    world.adapter()
    run(world, "tickets")
    month = f"{datetime.now(UTC):%Y-%m}"
    answer = acme.get("/v1/usage.csv", params={"month": month})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="usage-{month}.csv"'
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert (row["adapter"], row["version"], row["output_tokens"]) == ("tickets", "1", "5")
    assert list(csv.DictReader(io.StringIO(acme.get("/v1/usage.csv?month=2020-01").text))) == []


@pytest.mark.parametrize(
    "query",
    ["?first=2026-02-01&last=2026-01-01", "?first=2000-01-01", "?first=soon", "?last=0001-01-01&first=9999-12-31"],
)
def test_a_range_that_is_none_is_refused(acme: TestClient, query: str) -> None:
    assert acme.get(f"/v1/usage{query}").status_code == 400


@pytest.mark.parametrize("query", ["", "?month=2026-13", "?month=0000-01", "?month=2026-1"])
def test_a_month_that_is_none_is_refused(acme: TestClient, query: str) -> None:
    assert acme.get(f"/v1/usage.csv{query}").status_code == 400


@pytest.mark.parametrize("query", ["?last=0001-01-01", ".csv?month=0001-01", ".csv?month=9999-12"])
def test_the_ends_of_the_calendar_are_days_like_others(acme: TestClient, query: str) -> None:
    assert acme.get(f"/v1/usage{query}").status_code == 200
