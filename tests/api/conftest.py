"""The API over the real database, called in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from api.app import create_app
from registry.settings import Settings
from tests.world import World


@pytest.fixture(scope="session")
def app(settings: Settings, database_url: str) -> FastAPI:
    return create_app(settings)


@pytest.fixture(scope="session")
def stranger(app: FastAPI) -> Iterator[TestClient]:
    """A client without a key."""
    with TestClient(app) as client:
        yield client


@pytest.fixture
def as_tenant(stranger: TestClient, world: World) -> Callable[[str], TestClient]:
    """`as_tenant("acme")`: a client with a key of that tenant."""

    def client(tenant_id: str) -> TestClient:
        key = world.key(tenant_id)
        return TestClient(stranger.app, headers={"authorization": f"Bearer {key}"})

    return client


@pytest.fixture
def acme(as_tenant: Callable[[str], TestClient], world: World) -> TestClient:
    """The client of tenant `acme`, with the base `Tiny` registered."""
    world.base("Tiny")
    return as_tenant("acme")


@pytest.fixture
def adapter_form(
    make_adapter_dir: Callable[..., Path], tiny_base_dir: Path, tmp_path: Path
) -> Callable[..., dict[str, tuple[str, bytes]]]:
    """`adapter_form(seed=1)`: the two file parts of a good adapter."""

    def files(seed: int = 0, rank: int = 8) -> dict[str, tuple[str, bytes]]:
        folder = make_adapter_dir(tmp_path / f"form-{seed}-{rank}", tiny_base_dir, rank, seed)
        return {
            "adapter_config": ("adapter_config.json", (folder / "adapter_config.json").read_bytes()),
            "adapter_model": ("adapter_model.safetensors", (folder / "adapter_model.safetensors").read_bytes()),
        }

    return files
