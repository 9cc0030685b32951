"""Logs: one JSON object a line on stderr, ours and the libraries' alike, without local variables."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from registry.logs import configure_logs, get_logger


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_ours_and_a_librarys_record_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("INFO")
    get_logger("test").info("claimed", jobs=3)
    logging.getLogger("celery").warning("worker %s", "ready")
    ours, theirs = lines(capsys)
    assert (ours["event"], ours["jobs"], ours["level"], ours["logger"]) == ("claimed", 3, "info", "lorry.test")
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("worker ready", "warning", "celery")
    assert str(ours["timestamp"]).endswith("Z")


def test_a_traceback_is_one_line_without_local_variables(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("INFO")
    document = "tenant" + " words"
    try:
        int("x" + document[:0])
    except ValueError:
        get_logger("test").exception("failed")
    [line] = lines(capsys)
    assert "ValueError" in str(line["exception"])
    assert document not in json.dumps(line)


def test_the_level_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("WARNING")
    get_logger("test").info("quiet")
    get_logger("test").warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]
