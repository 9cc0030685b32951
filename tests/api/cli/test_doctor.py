"""`lorry doctor`."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from api.cli import doctor
from registry import migrations
from registry.embedded.ports import free_port
from registry.settings import get_settings
from tests.api.cli.called import Answer
from tests.api.cli.conftest import Lorry

KNOWN = migrations._known()


@pytest.fixture
def examined(lorry: Lorry, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Ports that are free and an engine that needs no import; a test then spoils one thing."""
    monkeypatch.setenv("LORRY_ENGINE", "fake")
    for name in ("API", "FLOWER"):
        monkeypatch.setenv(f"LORRY_{name}_PORT", str(free_port()))
    return monkeypatch


def _findings(answer: Answer) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in json.loads(answer.out)}


def _run(lorry: Lorry, *options: str) -> Answer:
    get_settings.cache_clear()
    return lorry("doctor", *options)


def test_a_machine_that_is_well_has_status_0(lorry: Lorry, examined: pytest.MonkeyPatch) -> None:
    answer = _run(lorry)
    assert answer.status == 0
    assert "FAIL" not in answer.out
    assert "PostgreSQL" in answer.out


@pytest.mark.parametrize(("known", "ok"), [(("9999", *KNOWN), False), (KNOWN, True), (KNOWN[1:], True)])
def test_a_schema_that_lacks_migrations_is_named_and_a_later_one_will_do(
    lorry: Lorry, examined: pytest.MonkeyPatch, known: tuple[str, ...], ok: bool
) -> None:
    examined.setattr(migrations, "_known", lambda: known)
    finding = _findings(_run(lorry, "--json"))["schema"]
    assert (finding["ok"], "registry.migrations" in finding["repair"]) == (ok, not ok)


def test_a_taken_port_is_named_with_its_setting(lorry: Lorry, examined: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        examined.setenv("LORRY_API_PORT", str(taken.getsockname()[1]))
        answer = _run(lorry)
    assert answer.status == 1
    assert "LORRY_API_PORT" in answer.out


def test_a_data_folder_that_cannot_be_made_is_named(lorry: Lorry, examined: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    examined.setenv("LORRY_DATA_DIR", str(file))
    finding = _findings(_run(lorry, "--json"))["data"]
    assert not finding["ok"]
    assert "LORRY_DATA_DIR" in finding["repair"]


def test_a_missing_server_program_is_named(lorry: Lorry, examined: pytest.MonkeyPatch, tmp_path: Path) -> None:
    examined.delenv("LORRY_BROKER_URL")
    examined.setenv("LORRY_VALKEY_PORT", str(free_port()))
    examined.setenv("LORRY_VALKEY_BIN", str(tmp_path / "absent"))
    finding = _findings(_run(lorry, "--json"))["valkey"]
    assert not finding["ok"]
    assert "absent" in finding["detail"]


def test_an_engine_that_does_not_import_shows_its_last_words(
    lorry: Lorry, examined: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "vllm.py").write_text("raise SystemExit('illegal instruction')")
    examined.setenv("LORRY_ENGINE", "vllm")
    examined.setenv("PYTHONPATH", str(tmp_path))
    examined.setattr(doctor, "_version", lambda package: "1.0")
    finding = _findings(_run(lorry, "--json"))["engine"]
    assert not finding["ok"]
    assert finding["detail"] == "illegal instruction"
    assert finding["repair"]
