"""/v1/models in OpenAI's form."""

from __future__ import annotations

from collections.abc import Callable

import openai
import pytest
from starlette.testclient import TestClient

from tests.world import World


def test_models_are_bases_active_adapters_and_versions(as_tenant: Callable[[str], TestClient], world: World) -> None:
    world.adapter("acme", "tickets")
    world.adapter("acme", "tickets")
    listed = as_tenant("acme").get("/v1/models").json()
    assert listed["object"] == "list"
    names = {model["id"]: (model["owned_by"], model["base_model"]) for model in listed["data"]}
    acme = ("acme", "Tiny")
    assert names == {"Tiny": ("lorry", "Tiny"), "tickets": acme, "tickets@1": acme, "tickets@2": acme}
    assert all(model["object"] == "model" and model["created"] > 1_700_000_000 for model in listed["data"])


def test_every_listed_model_can_be_read_and_used(as_tenant: Callable[[str], TestClient], world: World) -> None:
    world.adapter("acme", "tickets")
    client = as_tenant("acme")
    for model in client.get("/v1/models").json()["data"]:
        assert client.get(f"/v1/models/{model['id']}").json() == model
        assert client.post("/v1/jobs", json={"model": model["id"], "document": "x"}).status_code == 202


def test_the_openai_client_reads_the_list_and_the_errors(as_tenant: Callable[[str], TestClient], world: World) -> None:
    world.base("Tiny")
    client = as_tenant("acme")
    speaking = openai.OpenAI(
        api_key=client.headers["authorization"].removeprefix("Bearer "),
        base_url="http://testserver/v1",
        http_client=client,
        max_retries=0,
    )
    assert [model.id for model in speaking.models.list()] == ["Tiny"]
    with pytest.raises(openai.NotFoundError, match="GET /v1/models lists those that do") as caught:
        speaking.models.retrieve("nothing")
    assert caught.value.code == "model_not_found"
    assert (caught.value.request_id or "").startswith("req_")
