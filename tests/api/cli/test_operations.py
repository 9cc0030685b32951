"""`lorry pause`, `resume`, `drain`, `verify-store`, `after-restore`, and taking adapters out of service."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from registry import adapters
from registry.db import Database
from registry.settings import Settings, get_settings
from tests.api.cli.conftest import Lorry
from tests.world import World


@pytest.mark.parametrize(
    "option",
    [("--tenant", "acme"), ("--deployment", "Tiny"), ("--adapter", "acme/tickets"), ("--adapter", "acme/tickets@1")],
)
def test_what_is_paused_is_shown_until_it_is_resumed(lorry: Lorry, world: World, option: tuple[str, str]) -> None:
    world.adapter()
    world.job(model="tickets")
    world.pick()
    paused = lorry("pause", *option)
    assert (paused.status, "1 jobs" in paused.out) == (0, True)
    shown = json.loads(lorry("status", "--json").out)["paused"]
    assert [found["kind"] for found in shown] == [option[0].removeprefix("--")]
    assert "Paused" in lorry("status").out
    assert lorry("resume", *option).status == 0
    assert json.loads(lorry("status", "--json").out)["paused"] == []


@pytest.mark.parametrize(
    "options",
    [(), ("--tenant", "acme", "--deployment", "Tiny"), ("--adapter", "tickets"), ("--adapter", "acme/tickets@x")],
)
def test_a_pause_needs_exactly_one_thing(lorry: Lorry, options: tuple[str, ...]) -> None:
    assert lorry("pause", *options).status == 2


def test_nothing_unknown_is_paused_or_drained(lorry: Lorry) -> None:
    for command in (("pause", "--tenant", "who"), ("resume", "--adapter", "who/x"), ("drain", "who")):
        answer = lorry(*command)
        assert (answer.status, "who" in answer.err) == (1, True)


def test_a_living_worker_is_asked_to_drain(lorry: Lorry, world: World) -> None:
    worker = world.worker()
    assert lorry("drain", str(worker)).status == 0


def test_a_version_goes_out_of_service_and_comes_back(lorry: Lorry, world: World, system_db: Database) -> None:
    world.adapter()
    job = world.job(model="tickets")
    assert lorry("adapters", "quarantine", "acme", "tickets", "1", "--reason", "it answers nonsense").status == 0
    assert world.row(job)["error_code"] == "adapter_unavailable"
    again = lorry("adapters", "retire", "acme", "tickets", "1")
    assert (again.status, "quarantined already" in again.err) == (1, True)
    assert lorry("adapters", "release", "acme", "tickets", "1").status == 0
    assert lorry("adapters", "activate", "acme", "tickets", "1").status == 0
    assert lorry("adapters", "retire", "acme", "tickets", "1").status == 0
    with system_db.transaction() as session:
        assert adapters.get(session, "acme", "tickets", 1).state == "retired"


@pytest.fixture
def at_the_store(monkeypatch: pytest.MonkeyPatch, lorry: Lorry, settings: Settings) -> Lorry:
    monkeypatch.setenv("LORRY_DATA_DIR", str(settings.data_dir))
    get_settings.cache_clear()
    return lorry


def test_a_store_is_compared_with_the_digests(at_the_store: Lorry, world: World) -> None:
    sound, changed, missing = world.adapter(), world.adapter("globex"), world.adapter("initech")
    assert at_the_store("verify-store").status == 0
    weights = Path(changed.path) / "adapter_model.safetensors"
    weights.chmod(0o644)
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    shutil.rmtree(missing.path)
    answer = at_the_store("verify-store", "--json")
    assert answer.status == 1
    assert {(row["tenant"], row["fault"]) for row in json.loads(answer.out)} == {
        ("globex", "changed"),
        ("initech", "missing"),
    }
    shutil.rmtree(changed.path)
    assert Path(sound.path).exists()


def test_a_restored_database_is_made_fit_to_start_on(lorry: Lorry, world: World) -> None:
    job = world.job()
    world.claim(world.worker(), world.pick())
    answer = lorry("after-restore")
    assert (answer.status, "1 jobs" in answer.out, "1 workers" in answer.out) == (0, True, True)
    assert world.state(job) == "queued"
