"""docs/errors.md has every error code with its status, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from api.errors import KINDS
from registry.errors import EngineError, LorryError
from tests.docs import pages

PAGE = pages.read("errors")
ANSWERS = {row[0]: row[1] for row in pages.table(PAGE, "Answers of the API")}
OF_JOBS = {row[0] for row in pages.table(PAGE, "Errors of a job")}
OF_LINES = {row[0] for row in pages.table(PAGE, "Errors of a batch's lines")}
OF_OPERATORS = {row[0] for row in pages.table(PAGE, "Errors an operator meets")}


def tree(kind: type[LorryError]) -> Iterator[type[LorryError]]:
    yield kind
    for child in kind.__subclasses__():
        if not child.__module__.startswith("tests."):
            yield from tree(child)


def codes_in_sql() -> set[str]:
    """What the registry itself writes as a job's error, without raising anything."""
    sources = (pages.ROOT / "registry" / "transitions").glob("*.py")
    return {code for file in sources for code in re.findall(r"error_code = '(\w+)'", file.read_text("utf-8"))}


def test_every_code_is_on_the_page_and_no_other() -> None:
    assert {error.code for error in tree(LorryError)} | codes_in_sql() == (
        ANSWERS.keys() | OF_JOBS | OF_LINES | OF_OPERATORS
    )


def test_errors_outside_the_engine_have_the_status_that_the_api_gives_them() -> None:
    of_the_engine = {error.code for error in tree(EngineError)}

    assert {code: str(kind.status) for code, kind in KINDS.items() if code not in of_the_engine} == ANSWERS


def test_what_the_registry_writes_is_an_error_of_a_job() -> None:
    assert codes_in_sql()
    assert codes_in_sql() <= OF_JOBS
