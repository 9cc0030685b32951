"""Secrets at rest: readable by who has the key, for the row they belong to, and by nobody else."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr

from registry.errors import ConfigurationError
from registry.secrets import SecretBox
from registry.settings import Settings


def settings_in(folder: Path, key: str | None = None) -> Settings:
    return Settings(data_dir=folder, secret_key=SecretStr(key) if key else None)


def test_what_is_sealed_opens_again_in_another_process_with_the_same_folder(tmp_path: Path) -> None:
    sealed = SecretBox(settings_in(tmp_path)).seal("whsec_abc", "we_1")
    assert b"whsec" not in sealed
    assert SecretBox(settings_in(tmp_path)).open(sealed, "we_1") == "whsec_abc"


def test_one_secret_sealed_twice_looks_different(tmp_path: Path) -> None:
    box = SecretBox(settings_in(tmp_path))
    assert box.seal("same", "we_1") != box.seal("same", "we_1")


def test_a_secret_moved_to_another_row_does_not_open(tmp_path: Path) -> None:
    box = SecretBox(settings_in(tmp_path))
    with pytest.raises(ConfigurationError):
        box.open(box.seal("whsec_abc", "we_1"), "we_2")


@pytest.mark.parametrize("spoil", [lambda s: s[:-1], lambda s: b"\x02" + s[1:], lambda s: b"", lambda s: s[:20]])
def test_a_spoilt_secret_is_refused_without_a_word_of_it(tmp_path: Path, spoil: object) -> None:
    box = SecretBox(settings_in(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        box.open(spoil(box.seal("whsec_abc", "we_1")), "we_1")  # type: ignore[operator]
    assert "whsec_abc" not in str(caught.value)


def test_the_operators_key_wins_over_the_file_and_makes_none(tmp_path: Path) -> None:
    sealed = SecretBox(settings_in(tmp_path, "k" * 32)).seal("whsec_abc", "we_1")
    assert not (tmp_path / "secrets").exists()
    with pytest.raises(ConfigurationError, match="LORRY_SECRET_KEY"):
        SecretBox(settings_in(tmp_path)).open(sealed, "we_1")


def test_the_key_file_is_its_owners_only(tmp_path: Path) -> None:
    SecretBox(settings_in(tmp_path)).seal("x", "we_1")
    assert stat.S_IMODE((tmp_path / "secrets" / "sealing").stat().st_mode) == 0o600
    assert [file.name for file in (tmp_path / "secrets").iterdir()] == ["sealing"]


def _seal(folder: Path) -> bytes:
    return SecretBox(settings_in(folder)).seal("whsec_abc", "we_1")


def test_processes_that_start_together_share_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(6) as pool:
        sealed = pool.map(_seal, [tmp_path] * 24)
    box = SecretBox(settings_in(tmp_path))
    assert {box.open(one, "we_1") for one in sealed} == {"whsec_abc"}
