"""`lorry adapters`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.cli.conftest import Lorry
from tests.world import World

MakeAdapter = Callable[..., Path]


@pytest.fixture
def good(make_adapter_dir: MakeAdapter, tiny_base_dir: Path, tmp_path: Path) -> Path:
    return make_adapter_dir(tmp_path / "good", tiny_base_dir)


def test_a_check_against_a_model_folder_needs_no_database(offline: Lorry, good: Path, tiny_base_dir: Path) -> None:
    answer = offline("adapters", "check", good, "--base-path", tiny_base_dir, "--json")
    assert answer.status == 0
    told = json.loads(answer.out)
    assert told["problems"] == []
    assert told["facts"]["rank"] == 8


def test_every_problem_is_told_with_its_repair(
    offline: Lorry, make_adapter_dir: MakeAdapter, tiny_base_dir: Path, tmp_path: Path
) -> None:
    bad = make_adapter_dir(tmp_path / "bad", tiny_base_dir, 16)
    config = json.loads((bad / "adapter_config.json").read_text())
    (bad / "adapter_config.json").write_text(json.dumps(config | {"use_dora": True}))
    answer = offline("adapters", "check", bad, "--base-path", tiny_base_dir, "--max-rank", "8")
    assert answer.status == 1
    assert {"rank_too_high", "dora_unsupported"} <= {line.partition(":")[0] for line in answer.out.splitlines()}
    assert answer.out.count("  repair: ") >= 2


def test_a_check_finds_the_base_that_the_config_names(lorry: Lorry, good: Path, world: World) -> None:
    world.base("Tiny")
    answer = lorry("adapters", "check", good, "--json")
    assert answer.status == 0
    assert json.loads(answer.out)["base"] == "Tiny"


def test_a_base_that_nobody_knows_is_a_problem_that_stating_one_solves(lorry: Lorry, good: Path, world: World) -> None:
    world.base("Tiny", aliases=())
    unknown = lorry("adapters", "check", good)
    assert unknown.status == 1
    assert "base_mismatch" in unknown.out
    assert lorry("adapters", "check", good, "--base", "Tiny").status == 0


def test_two_bases_at_once_are_a_usage_error(offline: Lorry, good: Path) -> None:
    assert offline("adapters", "check", good, "--base", "A", "--base-path", good).status == 2


def test_a_first_version_is_active_and_a_second_one_when_asked(lorry: Lorry, good: Path, world: World) -> None:
    world.tenant("acme")
    world.base("Tiny")
    push = ("adapters", "push", good, "--tenant", "acme", "--name", "tickets")
    assert "acme/tickets@1 of Tiny: rank 8" in lorry(*push).out
    second = lorry(*push)
    assert "not active" in second.out
    assert "lorry adapters activate acme tickets 2" in second.err
    lorry(*push, "--activate")
    versions = {row["version"]: row["active"] for row in json.loads(lorry("adapters", "list", "--json").out)}
    assert versions == {1: False, 2: False, 3: True}
    assert lorry("adapters", "activate", "acme", "tickets", "1").status == 0
    assert json.loads(lorry("adapters", "show", "acme", "tickets", "--json").out)["version"] == 1


def test_files_left_behind_are_named(lorry: Lorry, good: Path, world: World) -> None:
    world.tenant("acme")
    world.base("Tiny")
    (good / "README.md").write_text("trained at home")
    answer = lorry("adapters", "push", good, "--tenant", "acme", "--name", "tickets")
    assert "left behind: README.md" in answer.out


def test_a_refused_folder_says_reason_and_repair_in_one_line(lorry: Lorry, tmp_path: Path, world: World) -> None:
    world.tenant("acme")
    world.base("Tiny")
    (tmp_path / "empty").mkdir()
    answer = lorry("adapters", "push", tmp_path / "empty", "--tenant", "acme", "--name", "tickets")
    assert answer.status == 1
    assert "[adapter_rejected: config_missing]" in answer.err
    assert answer.err.count("\n") == 1


def test_a_stated_base_is_recorded_with_who_stated_it(lorry: Lorry, good: Path, world: World) -> None:
    world.tenant("acme")
    world.base("Tiny", aliases=())
    lorry("adapters", "push", good, "--tenant", "acme", "--name", "tickets", "--base", "Tiny")
    shown = json.loads(lorry("adapters", "show", "acme", "tickets@1", "--json").out)
    assert shown["base_stated_by"].startswith("operator ")


def test_a_list_can_be_one_tenant_s(lorry: Lorry, world: World) -> None:
    world.adapter("acme")
    world.adapter("globex")
    rows = json.loads(lorry("adapters", "list", "--tenant", "globex", "--json").out)
    assert [row["tenant"] for row in rows] == ["globex"]


@pytest.mark.parametrize("model", ["tickets@9", "notes"])
def test_a_version_that_is_not_there_is_not_found(lorry: Lorry, world: World, model: str) -> None:
    world.adapter("acme")
    answer = lorry("adapters", "show", "acme", model)
    assert answer.status == 1
    assert "[not_found]" in answer.err
