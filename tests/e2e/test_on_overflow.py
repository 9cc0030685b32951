"""Documents longer than the context, from the API through dispatcher and worker to one result."""

from __future__ import annotations

from typing import Any

from httpx2 import Client, Response

from registry.embedded.ports import free_port
from tests.e2e.crew import Crew, eventually
from tests.e2e.test_api_killed import api
from tests.world import World

DOCUMENT = "".join(f"{number}번 프린터가 양면 인쇄에서 또 걸렸습니다. " for number in range(60))


def test_long_documents_are_refused_cut_or_divided_as_their_job_asks(crew: Crew, world: World) -> None:
    world.adapter("acme")
    crew.dispatcher()
    crew.worker()
    api(crew, port := free_port())
    headers = {"authorization": f"Bearer {world.key()}"}
    with Client(base_url=f"http://127.0.0.1:{port}/v1", headers=headers, timeout=30) as client:

        def submit(**fields: Any) -> Response:
            return client.post("/jobs", json={"model": "tickets", "document": DOCUMENT, "max_tokens": 20, **fields})

        def ended(answer: Response) -> Any:
            assert answer.status_code == 202, answer.text
            path = f"/jobs/{answer.json()['id']}"
            eventually(lambda: client.get(path).json()["finished_at"], within_s=30)
            return client.get(path).json()

        assert submit().json()["error"]["code"] == "prompt_too_long"
        cut = ended(submit(on_overflow="truncate"))
        divided = ended(submit(on_overflow="map_reduce"))
        listed = client.get("/jobs").json()["data"]
    assert (cut["status"], cut["overflow"]["strategy"]) == ("succeeded", "truncate")
    assert cut["overflow"]["dropped_tokens"] > len(DOCUMENT.encode()) - 512
    assert divided["status"] == "succeeded", divided
    assert divided["overflow"]["parts"] >= 10
    assert divided["usage"]["input_tokens"] > len(DOCUMENT.encode())
    assert divided["usage"]["output_tokens"] <= 20 * (divided["overflow"]["parts"] + 1)
    assert divided["timing"]["total_ms"] > 0
    assert {job["id"] for job in listed} == {cut["id"], divided["id"]}
    assert crew.states() == {"succeeded": 2}
