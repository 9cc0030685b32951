"""Printing records for people and for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from api.cli import output

MOMENT = datetime(2026, 3, 1, 9, 30, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ([], "-"),
        (True, "yes"),
        (False, "no"),
        (0.5, "0.5"),
        (0, "0"),
        (MOMENT, "2026-03-01 09:30:05"),
        (["a", None], "a, -"),
        ({"slots": ["x"]}, "slots x"),
    ],
)
def test_a_value_is_written_for_people(value: object, shown: str) -> None:
    assert output.cell(value) == shown


def test_rows_are_never_cut_for_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 150
    output.records([{"id": long, "other": long}], as_json=False, empty="none")
    assert f"{long}  {long}" in capsys.readouterr().out


def test_what_looks_like_markup_is_printed_as_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    output.records([{"name": "[red]한빛[/red]"}], as_json=False, empty="none")
    assert "[red]한빛[/red]" in capsys.readouterr().out


def test_json_keeps_every_language_and_times_with_their_zone(capsys: pytest.CaptureFixture[str]) -> None:
    output.record({"name": "한빛", "at": MOMENT}, as_json=True)
    out = capsys.readouterr().out
    assert "한빛" in out
    assert json.loads(out)["at"] == "2026-03-01T09:30:05+00:00"


def test_nested_fields_get_dotted_names(capsys: pytest.CaptureFixture[str]) -> None:
    output.record({"timing": {"swap": {"load_ms": 3.5}}}, as_json=False)
    assert capsys.readouterr().out.split() == ["timing.swap.load_ms", "3.5"]
