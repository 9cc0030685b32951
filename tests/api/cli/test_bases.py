"""`lorry bases` and `lorry deployments`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from api.cli import hub
from registry import base_models
from registry.db import Database
from registry.errors import NotFound
from tests.api.cli.conftest import Lorry
from tests.world import World


def test_a_base_comes_with_its_default_deployment_and_aliases(lorry: Lorry, tiny_base_dir: Path) -> None:
    added = lorry(
        *("bases", "add", "Tiny", "--path", tiny_base_dir, "--alias", "a/one", "--alias", "b/two"),
        *("--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "4", "--max-loras", "2"),
        *("--max-lora-rank", "8", "--max-cpu-loras", "4", "--gpu-memory-utilization", "0.2", "--device", "1"),
    )
    assert added.status == 0
    (base,) = json.loads(lorry("bases", "list", "--json").out)
    assert (base["name"], base["aliases"]) == ("Tiny", ["a/one", "b/two"])
    (deployment,) = json.loads(lorry("deployments", "list", "--json").out)
    assert deployment == {
        "name": "Tiny",
        "base": "Tiny",
        "default": True,
        "device": "1",
        "dtype": "float32",
        "max_model_len": 512,
        "max_num_seqs": 4,
        "max_loras": 2,
        "max_lora_rank": 8,
        "max_cpu_loras": 4,
        "tensor_parallel_size": 1,
        "gpu_memory_utilization": 0.2,
    }


def test_slots_and_host_copies_are_the_workers_to_count_unless_they_are_given(
    lorry: Lorry, tiny_base_dir: Path
) -> None:
    assert lorry("bases", "add", "Tiny", "--path", tiny_base_dir).status == 0
    (deployment,) = json.loads(lorry("deployments", "list", "--json").out)
    assert (deployment["max_loras"], deployment["max_cpu_loras"]) == ("auto", "auto")


def test_a_deployment_that_is_refused_leaves_no_base_behind(
    lorry: Lorry, tiny_base_dir: Path, system_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: 1024)
    answer = lorry("bases", "add", "Tiny", "--path", tiny_base_dir)
    assert answer.status == 1
    assert "do not fit" in answer.err
    with system_db.transaction() as session, pytest.raises(NotFound):
        base_models.get(session, "Tiny")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--max-lora-rank", "9"), "max_lora_rank is one of"),
        (("--max-loras", "4", "--max-cpu-loras", "2"), "max_cpu_loras"),
        (("--gpu-memory-utilization", "1.5"), "gpu_memory_utilization"),
    ],
)
def test_engine_settings_that_vllm_would_refuse_are_refused_here(
    lorry: Lorry, tiny_base_dir: Path, options: tuple[str, ...], says: str
) -> None:
    answer = lorry("bases", "add", "Tiny", "--path", tiny_base_dir, *options)
    assert answer.status == 1
    assert says in answer.err


def test_exactly_one_of_path_and_hub_is_wanted(lorry: Lorry, tiny_base_dir: Path) -> None:
    assert lorry("bases", "add", "Tiny").status == 2
    assert lorry("bases", "add", "Tiny", "--path", tiny_base_dir, "--hub", "a/b").status == 2


def test_a_template_file_becomes_the_base_s_template(
    lorry: Lorry, tiny_base_dir: Path, tmp_path: Path, world: World
) -> None:
    template = [{"role": "user", "content": "요약: {document}"}]
    file = tmp_path / "template.json"
    file.write_text(json.dumps(template), "utf-8")
    assert lorry("bases", "add", "Tiny", "--path", tiny_base_dir, "--template", file).status == 0
    assert world.base_row("Tiny").template == template


@pytest.mark.parametrize("content", ['{"role": "user"}', "not json", '[{"role": "user", "content": "no placeholder"}]'])
def test_a_template_without_one_place_for_the_document_is_refused(
    lorry: Lorry, tiny_base_dir: Path, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "template.json"
    file.write_text(content, "utf-8")
    answer = lorry("bases", "add", "Tiny", "--path", tiny_base_dir, "--template", file)
    assert answer.status == 1
    assert "[invalid_value]" in answer.err


def test_a_missing_template_file_is_named(lorry: Lorry, tiny_base_dir: Path, tmp_path: Path) -> None:
    answer = lorry("bases", "add", "Tiny", "--path", tiny_base_dir, "--template", tmp_path / "absent.json")
    assert answer.status == 1
    assert "absent.json: No such file" in answer.err


def test_a_hub_base_is_known_by_its_hub_id_too(
    lorry: Lorry, tiny_base_dir: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "find", lambda hub_id, revision: (tiny_base_dir, "0123abc"))
    assert lorry("bases", "add", "Tiny", "--hub", "owner/tiny").status == 0
    (base,) = json.loads(lorry("bases", "list", "--json").out)
    assert (base["aliases"], base["revision"]) == (["owner/tiny"], "0123abc")


def test_a_rank_class_is_added_beside_the_default(lorry: Lorry, world: World) -> None:
    world.base("Tiny")
    assert lorry("deployments", "add", "Tiny-r64", "--base", "Tiny", "--max-lora-rank", "64").status == 0
    found = {row["name"]: row["default"] for row in json.loads(lorry("deployments", "list", "--json").out)}
    assert found == {"Tiny": True, "Tiny-r64": False}


def test_a_rank_class_of_an_unknown_base_is_refused(lorry: Lorry) -> None:
    answer = lorry("deployments", "add", "X", "--base", "Nowhere")
    assert answer.status == 1
    assert "[not_found]" in answer.err
