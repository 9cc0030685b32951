"""docs/states.md has every state and every arrow, in its tables and in its diagram."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from registry import transitions
from registry.models import Adapter, Worker
from registry.models.batches import BATCH_ARROWS, BATCH_STATES
from registry.states import ARROWS, State, status_for_tenant
from tests.docs import pages

PAGE = pages.read("states")
CODE = {(str(leaves), str(enters)) for leaves, targets in ARROWS.items() for enters in targets}


def test_every_state_is_explained() -> None:
    assert [row[0] for row in pages.table(PAGE, "What each state means")] == list(State)


@pytest.mark.parametrize("row", pages.table(PAGE, "What each state means"), ids=lambda row: row[0])
def test_tenants_read_the_status_on_the_page(row: list[str]) -> None:
    started = [None] if row[0] in ("queued", "dispatched") else [None, datetime.now(UTC)]
    read = [status_for_tenant(row[0], moment) for moment in started]

    assert re.findall(r"\w+", row[1].replace("then", "")) == list(dict.fromkeys(read))


def test_the_table_has_the_arrows_of_the_code() -> None:
    assert {(row[0], row[1]) for row in pages.table(PAGE, "Arrows")} == CODE


def test_the_diagram_has_the_arrows_of_the_code() -> None:
    diagram, _ = pages.code_blocks(PAGE, "mermaid")

    assert set(re.findall(r"(\w+) --> (\w+)", diagram)) == CODE


def test_the_batchs_diagram_table_and_trigger_have_the_arrows_and_states_of_the_code() -> None:
    _, diagram = pages.code_blocks(PAGE, "mermaid")
    rules = Path(transitions.__file__).parents[1] / "migrations" / "sql" / "0002_lifecycle.sql"
    allowed = re.findall(r"OLD\.status = '(\w+)' AND NEW\.status IN \(([^)]*)\)", rules.read_text("utf-8"))
    arrows = {(leaves, enters) for leaves, targets in BATCH_ARROWS.items() for enters in targets}

    assert set(re.findall(r"(\w+) --> (\w+)", diagram)) == arrows
    assert {(leaves, enters) for leaves, targets in allowed for enters in re.findall(r"\w+", targets)} == arrows
    assert [row[0] for row in pages.table(PAGE, "States of a batch")] == list(BATCH_STATES)


def test_every_transition_is_named() -> None:
    functions = [name for name in transitions.__all__ if name[0].islower() and name != "start"]

    assert [name for name in functions if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("table", [Worker.__table__, Adapter.__table__], ids=["worker", "adapter"])
def test_states_of_other_rows_are_named(table: object) -> None:
    (check,) = [c for c in table.constraints if str(c.name).endswith("state_known")]  # type: ignore[attr-defined]
    words = re.findall(r"'(\w+)'", str(check.sqltext))

    assert words
    assert [word for word in words if f"`{word}`" not in PAGE] == []


def test_the_trigger_allows_the_arrows_of_the_code() -> None:
    rules = Path(transitions.__file__).parents[1] / "migrations" / "sql" / "0001_rules.sql"
    allowed = re.findall(r"OLD\.state = '(\w+)' AND NEW\.state IN \(([^)]*)\)", rules.read_text("utf-8"))

    assert {(leaves, enters) for leaves, targets in allowed for enters in re.findall(r"\w+", targets)} == CODE
