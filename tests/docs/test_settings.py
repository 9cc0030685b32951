"""docs/settings.md says of every setting what the code says, and no page names a variable that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from registry.settings import Settings
from tests.docs import pages

FIELDS = Settings.model_fields
# Variables that only docker-compose.yml and the Procfile read.
DEPLOYMENT_FILES = ("docker-compose.yml", "Procfile")


def row_of(name: str, field: FieldInfo) -> list[str]:
    default = "" if field.default is None else str(field.default)
    return [f"LORRY_{name.upper()}", default, field.description or ""]


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in FIELDS.items() if not field.description] == []


def test_the_table_is_the_codes() -> None:
    assert pages.table(pages.read("settings"), "Settings") == [row_of(name, field) for name, field in FIELDS.items()]


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_pages_name_only_variables_that_exist(page: Path) -> None:
    known = {f"LORRY_{name.upper()}" for name in FIELDS}
    for file in DEPLOYMENT_FILES:
        known |= set(re.findall(r"LORRY_[A-Z_]*[A-Z]", (pages.ROOT / file).read_text("utf-8")))

    assert set(re.findall(r"LORRY_[A-Z_]*[A-Z]", page.read_text("utf-8"))) <= known
