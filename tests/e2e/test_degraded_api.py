"""The API's own process while its disk is full and while its database is away."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import httpx2

from registry import adapters
from registry.embedded.ports import free_port
from registry.settings import Settings
from tests.e2e.crew import Crew, Member, eventually
from tests.relay import Relay
from tests.tiny_base import make_adapter_dir
from tests.world import World

LIMIT_BYTES = 8 * 1024
"""Larger than what the API logs here, smaller than an adapter."""


class Api:
    """The process, and a client with a key of acme's."""

    def __init__(self, crew: Crew, key: str, **changes: str) -> None:
        port = free_port()
        self.member: Member = crew.api(port, **changes)
        self.client = httpx2.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {key}"}, timeout=10
        )
        eventually(self.answers, within_s=60)

    def answers(self) -> bool:
        try:
            return self.client.get("/livez").status_code == 200
        except httpx2.TransportError:
            return False


def test_an_upload_that_finds_no_room_is_refused_whole_and_taken_once_there_is_room(
    crew: Crew, world: World, tmp_path: Path
) -> None:
    world.base()
    crew_data = tmp_path / "data"
    api = Api(crew, world.key(), LORRY_DATA_DIR=str(crew_data))
    folder = make_adapter_dir(tmp_path / "adapter", world.base_dir, 8, 1)
    parts = ("adapter_config", "json"), ("adapter_model", "safetensors")
    files = {name: (folder / f"{name}.{ending}").read_bytes() for name, ending in parts}
    assert len(files["adapter_model"]) > LIMIT_BYTES

    def push() -> httpx2.Response:
        return api.client.post("/v1/adapters", data={"name": "tickets"}, files=files)

    unlimited = resource.prlimit(api.member.pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))
    refused = push()
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "storage_full")
    assert [file for file in crew_data.rglob("*") if file.is_file()] == []
    with world.db.transaction() as session:
        assert adapters.of_tenant(session, "acme") == []
    assert api.client.post("/v1/jobs", json={"model": "Tiny", "document": "Still served."}).status_code == 202
    resource.prlimit(api.member.pid, resource.RLIMIT_FSIZE, unlimited)
    assert push().status_code == 201


def test_without_its_database_the_api_says_so_at_once_and_recovers_by_itself(
    crew: Crew, world: World, settings: Settings
) -> None:
    world.base()
    relay = Relay(settings.pg_port)
    api = Api(crew, world.key(), LORRY_DATABASE_URL=relay.url(settings.resolved_database_url))
    job = {"model": "Tiny", "document": "The printer jams."}
    assert api.client.post("/v1/jobs", json=job).status_code == 202
    relay.cut()
    for _ in range(5):
        begun_s = time.monotonic()
        answer = api.client.post("/v1/jobs", json=job)
        took_s = time.monotonic() - begun_s
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert took_s < 1, took_s
    relay.mend()
    eventually(lambda: api.client.post("/v1/jobs", json=job).status_code == 202, within_s=10)
    relay.cut()
    assert len(crew.jobs()) == 2, "nothing was accepted that was not stored"


def test_without_a_broker_submissions_go_on(crew: Crew, world: World) -> None:
    world.base()
    api = Api(crew, world.key(), LORRY_BROKER_URL="redis://127.0.0.1:9/0")
    for _ in range(20):
        assert api.client.post("/v1/jobs", json={"model": "Tiny", "document": "x"}).status_code == 202
    assert len(crew.jobs()) == 20
