"""Settings: from `LORRY_*` variables, checked at start, frozen, and addresses of the embedded servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from registry.settings import Settings, child_environment, get_settings


def test_variables_with_the_prefix_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORRY_API_PORT", "9000")
    monkeypatch.setenv("LORRY_DATA_DIR", "/somewhere")
    monkeypatch.setenv("LORRY_NOT_A_SETTING", "x")
    monkeypatch.setenv("API_PORT", "1")
    settings = Settings()
    assert (settings.api_port, settings.data_dir) == (9000, Path("/somewhere"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("API_PORT", "0"),
        ("API_PORT", "abc"),
        ("ENGINE", "other"),
        ("LOG_LEVEL", "loud"),
        ("LEASE_S", "-1"),
        ("HELD", "0"),
    ],
)
def test_a_bad_value_stops_the_process_and_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"LORRY_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()


def test_settings_do_not_change(settings: Settings) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        settings.api_port = 1  # type: ignore[misc]


def test_a_process_reads_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    get_settings.cache_clear()
    monkeypatch.setenv("LORRY_API_PORT", "9000")
    first = get_settings()
    monkeypatch.setenv("LORRY_API_PORT", "9001")
    assert get_settings() is first
    get_settings.cache_clear()


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_the_operators_servers_come_before_the_embedded_ones(tmp_path: Path) -> None:
    given = Settings(database_url="postgresql+psycopg://u@h/d", broker_url="redis://h:1/2")
    assert (given.resolved_database_url, given.resolved_broker_url) == ("postgresql+psycopg://u@h/d", "redis://h:1/2")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "postgres").write_text("pw1\n")
    (tmp_path / "secrets" / "valkey").write_text("pw2\n")
    own = Settings(data_dir=tmp_path, pg_port=1234, valkey_port=4321)
    assert own.resolved_database_url == "postgresql+psycopg://lorry:pw1@127.0.0.1:1234/lorry"
    assert own.resolved_broker_url == "redis://:pw2@127.0.0.1:4321/0"


def test_a_password_shows_in_no_representation() -> None:
    assert "hunter2" not in repr(Settings(flower_password="hunter2"))


def test_a_child_gets_this_environment_with_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORRY_API_PORT", "9000")
    child = child_environment(LORRY_API_PORT="9001", NEW="x")
    assert (child["LORRY_API_PORT"], child["NEW"]) == ("9001", "x")


def test_the_store_is_an_absolute_folder() -> None:
    assert Settings(data_dir=Path("rel")).store_dir == Path.cwd() / "rel" / "store"
