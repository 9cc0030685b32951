"""docs/architecture.md names every module of the three rooms and every decision, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import pages

PAGE = pages.read("architecture")
ROOMS = ("registry", "api", "workers")
DECISIONS = sorted((pages.DOCS / "decisions").glob("*.md"))


def modules(room: str) -> set[str]:
    """Files and folders of code directly in a room."""
    places = (pages.ROOT / room).iterdir()
    found = {place.stem for place in places if place.suffix == ".py" or (place / "__init__.py").exists()}
    return {name for name in found if not name.startswith("__")}


@pytest.mark.parametrize("room", ROOMS)
def test_every_module_has_its_place_in_the_table_of_rooms(room: str) -> None:
    (cell,) = [row[1] for row in pages.table(PAGE, "Rooms") if row[0].startswith(f"`{room}/`")]

    assert set(re.findall(r"`([a-z_]+)`", cell)) == modules(room)


def test_paths_in_the_text_exist() -> None:
    named = set(re.findall(r"`((?:registry|api|workers)/[a-z_]+)`", PAGE))

    assert [name for name in sorted(named) if name.split("/")[1] not in modules(name.split("/")[0])] == []


@pytest.mark.parametrize("file", DECISIONS, ids=lambda file: file.stem)
def test_every_decision_is_linked_under_its_title(file: Path) -> None:
    title = file.read_text("utf-8").splitlines()[0].removeprefix("# ")

    assert title.startswith(f"{file.name[:4]}: ")
    assert f"- [{title}](decisions/{file.name})" in PAGE


def test_decisions_are_numbered_without_gaps() -> None:
    assert [int(file.name[:4]) for file in DECISIONS] == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("file", DECISIONS, ids=lambda file: file.stem)
def test_every_decision_says_why_and_what_follows(file: Path) -> None:
    text = file.read_text("utf-8")

    assert [part for part in ("**Context.**", "**Decision.**", "**Consequences.**") if part not in text] == []
