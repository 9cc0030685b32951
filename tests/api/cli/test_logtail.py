"""Log files on the terminal: whole lines, prefixed, our records in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.cli.logtail import LogTail, readable


def test_only_new_whole_lines_are_shown_with_their_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "api.log"
    log.write_text("old\n")
    tail = LogTail()
    tail.add("api", log)
    with log.open("a") as file:
        file.write("new\nhal")
        file.flush()
        tail.show_new()
        file.write("f\n")
    tail.show_new()
    shown = capsys.readouterr().out.splitlines()
    assert [line.split(" | ") for line in shown] == [[f"{'api':<18}", "new"], [f"{'api':<18}", "half"]]


def test_a_file_that_was_put_aside_is_read_from_its_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "api.log"
    log.write_text("a long line of the old file\n")
    tail = LogTail()
    tail.add("api", log)
    log.write_text("new\n")
    tail.show_new()
    assert capsys.readouterr().out.endswith("| new\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"event": "claimed", "jobs": 3, "level": "info", "timestamp": "x", "logger": "l"}', "claimed jobs=3"),
        ('{"event": "gone", "level": "error"}', "error gone"),
        ('{"no": "event"}', '{"no": "event"}'),
        ("plain words", "plain words"),
        ("[1]", "[1]"),
    ],
)
def test_records_become_words_and_other_lines_stay(line: str, words: str) -> None:
    assert readable(line) == words
