"""Base shapes: read from the operator's own files, one or many, linked or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from registry.adapter_files import base_shapes
from registry.errors import ConfigurationError
from tests.registry.adapter_corpus import HIDDEN, LAYERS, MODULES, VOCAB, make_base


def test_base_shapes_are_read_from_one_file_or_shards_with_the_tied_head_added(tmp_path: Path) -> None:
    whole = base_shapes(make_base(tmp_path / "whole"))
    assert whole == base_shapes(make_base(tmp_path / "shards", shards=3))
    assert whole == base_shapes(make_base(tmp_path / "untied", tied=False))
    assert whole["model.layers.1.mlp.down_proj"] == (64, 128)
    assert whole["lm_head"] == (VOCAB, HIDDEN)
    assert "model.norm" not in whole
    assert len(whole) == LAYERS * len(MODULES) + 2


def test_base_shapes_follow_the_links_of_a_hub_cache(tmp_path: Path) -> None:
    base = make_base(tmp_path / "blobs")
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "model.safetensors").symlink_to(base / "model.safetensors")
    assert base_shapes(snapshot) == base_shapes(base)


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 64, b"\x02" + b"\0" * 7 + b"[]", b"\x02" + b"\0" * 7 + b"{}"])
def test_a_folder_that_is_no_base_is_the_operators_mistake(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigurationError):
        base_shapes(tmp_path)
