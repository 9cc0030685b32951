"""The adapter gate over whole folders: good ones are accepted with the right facts, bad ones refused by reason."""

from __future__ import annotations

import hashlib
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from registry.adapter_files import CONFIG_NAME, REPAIRS, WEIGHTS_NAME, base_shapes, check, digest, problems, take
from registry.errors import AdapterRejected
from tests.registry.adapter_bad_folders import BAD, Q0, Q0_A, Q0_B
from tests.registry.adapter_corpus import (
    BASE_NAME,
    HIDDEN,
    LAYERS,
    MODULES,
    Adapter,
    good,
    header_of,
    lora,
    make_base,
    tensor,
)

MAX_RANK = 16


@pytest.fixture(scope="module")
def limits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the tiny base's deployment accepts."""
    base = make_base(tmp_path_factory.mktemp("base") / "model")
    return {
        "base_shapes": base_shapes(base),
        "base_names": {BASE_NAME, "alias/of-tiny"},
        "max_rank": MAX_RANK,
        "max_bytes": 2 * 2**20,
    }


ALL = tuple(MODULES)
UNSLOTH = (
    r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp).*?(?:k_proj|v_proj|q_proj).*?)"
    r"|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|attention|attn|mlp)\.(?:(?:q_proj|v_proj)))"
)
GOOD: dict[str, tuple[Adapter, int]] = {
    "F32": (good(), 8),
    "F16": (good(dtype="F16"), 8),
    "BF16": (good(dtype="BF16"), 8),
    "rank 1": (good(rank=1), 1),
    "rank at the ceiling": (good(rank=MAX_RANK), 16),
    "every module": (good(rank=2, names=ALL), 2),
    "all-linear": (good(rank=2, names=ALL).having(target_modules="all-linear"), 2),
    "rsLoRA": (good().having(use_rslora=True), 8),
    "rank pattern": (good(ranks={"v_proj": 16}), 16),
    "rank pattern as expression": (
        good(ranks={"v_proj": 4}).having(rank_pattern={r"layers\.\d+\.self_attn.v_proj": 4}),
        8,
    ),
    "alpha pattern": (good().having(alpha_pattern={"self_attn.q_proj": 64}), 8),
    "targets as expression": (good().having(target_modules=r".*\.self_attn\.(q|v)_proj"), 8),
    "targets as Unsloth writes them": (good().having(target_modules=UNSLOTH), 8),
    "full paths": (good(layers=1).having(target_modules=[Q0, Q0.replace("q_proj", "v_proj")]), 8),
    "first layer only": (good(layers=1).having(layers_to_transform=[0], layers_pattern="layers"), 8),
    "excluded": (
        good(names=("self_attn.v_proj",)).having(target_modules=["q_proj", "v_proj"], exclude_modules=["q_proj"]),
        8,
    ),
    "gaussian": (good().having(init_lora_weights="gaussian"), 8),
    "newer PEFT's options, off": (good().having(use_hyperlora=False, hyper_config=None), 8),
    "alias": (good().having(base_model_name_or_path="alias/of-tiny"), 8),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_folder_is_accepted(name: str, tmp_path: Path, limits: dict[str, Any]) -> None:
    adapter, rank = GOOD[name]
    facts = check(adapter.write(tmp_path / "a"), **limits)
    assert facts.rank == rank
    assert facts.dtype in name or name not in ("F32", "F16", "BF16")
    assert problems(tmp_path / "a", **limits) == []


@pytest.mark.parametrize("name", BAD)
def test_a_bad_folder_is_refused_with_its_reason(name: str, tmp_path: Path, limits: dict[str, Any]) -> None:
    reason, make = BAD[name]
    folder = tmp_path / "a"
    folder.mkdir()
    make(folder)
    with pytest.raises(AdapterRejected) as refusal:
        check(folder, **limits)
    assert refusal.value.reason == reason
    assert refusal.value.repair == REPAIRS[reason]
    assert len(refusal.value.message) < 400
    assert problems(folder, **limits)[0].reason == reason


def test_every_reason_is_met_by_a_bad_folder() -> None:
    """`module_unsupported` has a test of its own below: the tiny base has no other module to train."""
    assert set(REPAIRS) - {reason for reason, _ in BAD.values()} == {"module_unsupported"}


def test_a_module_that_is_not_served_is_refused(tmp_path: Path, limits: dict[str, Any]) -> None:
    router = "model.layers.0.mlp.gate"
    shapes = limits["base_shapes"] | {router: (4, HIDDEN)}
    adapter = (
        good().with_tensors(**lora(router, 8, (4, HIDDEN))).having(target_modules=["q_proj", "v_proj", "mlp.gate"])
    )
    found = problems(adapter.write(tmp_path), **limits | {"base_shapes": shapes})
    assert {problem.reason for problem in found} == {"module_unsupported"}


def test_the_facts_describe_the_adapter(tmp_path: Path, limits: dict[str, Any]) -> None:
    folder = good(dtype="BF16").write(tmp_path)
    for name in ("README.md", "tokenizer.json", "optimizer.pt", "chat_template.jinja"):
        (folder / name).write_text("left behind")
    facts = check(folder, **limits)
    files = (folder / CONFIG_NAME, folder / WEIGHTS_NAME)
    assert (facts.rank, facts.alpha, facts.dtype) == (8, 16.0, "BF16")
    assert facts.target_modules == ("q_proj", "v_proj")
    assert facts.base_model_name_or_path == BASE_NAME
    assert facts.left_behind == ("README.md", "chat_template.jinja", "optimizer.pt", "tokenizer.json")
    assert facts.files == files
    assert facts.size_bytes == sum(len(file.read_bytes()) for file in files)
    expected = hashlib.sha256()
    for file in files:
        raw = file.read_bytes()
        expected.update(file.name.encode() + b"\0" + len(raw).to_bytes(8, "little") + raw)
    assert facts.digest == expected.hexdigest() == digest(folder)


def test_mixed_dtypes_are_said_to_be_mixed(tmp_path: Path, limits: dict[str, Any]) -> None:
    adapter = good().with_tensors(**lora(Q0, 8, (HIDDEN, HIDDEN), "F16"))
    assert check(adapter.write(tmp_path), **limits).dtype == "mixed"


def test_a_stated_base_overrules_the_name_but_not_the_shapes(tmp_path: Path, limits: dict[str, Any]) -> None:
    other = good().having(base_model_name_or_path="/home/me/models/tiny")
    assert (
        check(other.write(tmp_path / "a"), **limits, base_stated=True).base_model_name_or_path == "/home/me/models/tiny"
    )
    wide = other.with_tensors(**lora(Q0, 8, (HIDDEN, 2 * HIDDEN)))
    with pytest.raises(AdapterRejected) as refusal:
        check(wide.write(tmp_path / "b"), **limits, base_stated=True)
    assert refusal.value.reason == "shape_mismatch"


def test_all_problems_are_listed_and_the_first_refusal_counts_the_others(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    poisoned = np.full((8, HIDDEN), np.nan, np.float32)
    adapter = good(layers=3).having(use_dora=True, bias="all", base_model_name_or_path="x")
    folder = adapter.with_tensors(**{Q0_A: tensor(poisoned)}).write(tmp_path)
    found = problems(folder, **limits)
    reasons = [problem.reason for problem in found]
    assert reasons == [
        "dora_unsupported",
        "bias_unsupported",
        "base_mismatch",
        "layer_missing",
        "layer_missing",
        "values_nan",
    ]
    with pytest.raises(AdapterRejected, match=r"5 more"):
        check(folder, **limits)


def test_many_problems_of_one_kind_are_counted_not_listed(tmp_path: Path, limits: dict[str, Any]) -> None:
    names = tuple(f"self_attn.other_{at}" for at in range(9))
    strangers = {key: item for name in names for key, item in lora(f"model.layers.0.{name}", 1, (2, 2)).items()}
    found = problems(good().with_tensors(**strangers).write(tmp_path), **limits)
    assert [problem.reason for problem in found] == ["unknown_module"] * 6
    assert "4 more" in found[-1].message


def test_names_from_the_file_are_bounded_and_printable_in_messages(tmp_path: Path, limits: dict[str, Any]) -> None:
    name = "\x1b[31m\n" + "x" * 50_000
    adapter = good()
    folder = replace(adapter, tensors=adapter.tensors | {name: tensor(np.zeros((1, 1)))}).write(tmp_path)
    message = problems(folder, **limits)[0].message
    assert message.isprintable()
    assert len(message) < 200


@pytest.mark.parametrize("length", [640, 1152])
def test_a_header_length_that_looks_like_a_pickle_is_accepted(
    length: int, tmp_path: Path, limits: dict[str, Any]
) -> None:
    """640 and 1152 are written as 80 02 and 80 04, the first bytes of a pickle."""
    adapter = good(layers=1) if length == 640 else good()
    adapter = adapter.having(layers_to_transform=list(range(1 if length == 640 else LAYERS)))
    folder = adapter.write(tmp_path)
    raw = json.dumps(header_of(adapter.tensors)).encode()
    assert len(raw) <= length
    data = b"".join(item.data for item in adapter.tensors.values())
    (folder / WEIGHTS_NAME).write_bytes(length.to_bytes(8, "little") + raw.ljust(length) + data)
    assert check(folder, **limits).rank == 8


def test_take_copies_the_two_files_read_only_and_names_the_rest(tmp_path: Path, limits: dict[str, Any]) -> None:
    folder, destination = good().write(tmp_path / "a"), tmp_path / "b"
    (folder / "tokenizer.json").write_text("{}")
    destination.mkdir()
    assert take(folder, destination) == ("tokenizer.json",)
    assert sorted(file.name for file in destination.iterdir()) == [CONFIG_NAME, WEIGHTS_NAME]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o444 for file in destination.iterdir())
    assert digest(destination) == digest(folder)
    assert check(destination, **limits).left_behind == ()


@pytest.mark.parametrize(
    "name", ["weights are a link", "config is a link", "weights are a pipe", "no weights", "no folder"]
)
def test_take_refuses_what_is_not_two_regular_files(name: str, tmp_path: Path) -> None:
    reason, make = BAD[name]
    folder, destination = tmp_path / "a", tmp_path / "b"
    folder.mkdir()
    destination.mkdir()
    make(folder)
    with pytest.raises(AdapterRejected) as refusal:
        take(folder, destination)
    assert refusal.value.reason == reason


def test_the_second_half_alone_is_named_in_the_message(tmp_path: Path, limits: dict[str, Any]) -> None:
    plain = good()
    kept = {key: item for key, item in plain.tensors.items() if key != Q0_B}
    with pytest.raises(AdapterRejected, match="only lora_A"):
        check(replace(plain, tensors=kept).write(tmp_path), **limits)
