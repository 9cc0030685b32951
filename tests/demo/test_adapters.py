"""The four committed adapters: present, small, bfloat16, of the right base, and free of this or any machine's paths."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from demo.base_model import BASE_NAME
from demo.tickets import TENANTS, DemoTenant
from demo.train import ADAPTERS_DIR

each_tenant = pytest.mark.parametrize("tenant", TENANTS, ids=lambda tenant: tenant.id)


def _folder(tenant: DemoTenant) -> Path:
    return ADAPTERS_DIR / tenant.id


@each_tenant
def test_an_adapter_is_its_two_files_and_small(tenant: DemoTenant) -> None:
    files = {path.name: path.stat().st_size for path in _folder(tenant).iterdir()}
    assert set(files) == {"adapter_config.json", "adapter_model.safetensors"}
    assert sum(files.values()) < 1_500_000


@each_tenant
def test_its_weights_are_bfloat16_pairs_on_every_layers_query_and_value(tenant: DemoTenant) -> None:
    with safe_open(_folder(tenant) / "adapter_model.safetensors", framework="pt") as weights:
        slices = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118 (not a dict)
    assert {piece.get_dtype() for piece in slices.values()} == {"BF16"}
    assert set(slices) == {
        f"base_model.model.model.layers.{layer}.self_attn.{module}.lora_{side}.weight"
        for layer in range(30)
        for module in ("q_proj", "v_proj")
        for side in "AB"
    }


@each_tenant
def test_its_config_names_the_base_by_its_public_name_and_holds_no_local_path(tenant: DemoTenant) -> None:
    text = (_folder(tenant) / "adapter_config.json").read_text()
    config = json.loads(text)
    assert config["base_model_name_or_path"] == BASE_NAME
    assert (config["r"], config["lora_alpha"]) == (8, 16)
    strings = [value for value in config.values() if isinstance(value, str)]
    assert not [value for value in strings if value.startswith((".", "/", "~")) or "\\" in value]


def test_no_two_tenants_share_weights() -> None:
    contents = {(_folder(tenant) / "adapter_model.safetensors").read_bytes() for tenant in TENANTS}
    assert len(contents) == len(TENANTS)
