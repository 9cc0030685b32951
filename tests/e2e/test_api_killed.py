"""The API is killed in the middle of a request: a repetition with the same key is one effect, whatever was done."""

from __future__ import annotations

import pytest
from httpx2 import Client, TransportError

from registry.embedded.ports import free_port
from tests.e2e.crew import Crew, Member, eventually
from tests.world import World

JOB = {"model": "Tiny", "document": "The printer jams."}


def api(crew: Crew, port: int, **changes: str) -> Member:
    """An API process that answers."""
    member = crew.api(port, **changes)

    def answers() -> bool:
        try:
            return Client().get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        except TransportError:
            return False

    eventually(answers)
    return member


@pytest.mark.parametrize(
    ("place", "left", "replayed"), [("before_answer_commit", 0, None), ("after_answer_commit", 1, "true")]
)
def test_a_kill_in_the_middle_of_a_request_and_a_repetition_are_one_effect(
    crew: Crew, world: World, place: str, left: int, replayed: str | None
) -> None:
    world.base()
    headers = {"authorization": f"Bearer {world.key()}", "idempotency-key": "k"}
    url = f"http://127.0.0.1:{(port := free_port())}/v1/jobs"
    killed = api(crew, port, LORRY_FAILPOINT=place)
    with pytest.raises(TransportError):
        Client().post(url, json=JOB, headers=headers)
    assert killed.exit_code() == 137
    # The database notices that the killed process's connection is gone a moment later.
    eventually(lambda: len(crew.jobs()) == left)
    api(crew, port)
    answer = Client().post(url, json=JOB, headers=headers)
    assert (answer.status_code, answer.headers.get("idempotency-replayed")) == (202, replayed)
    assert [f"job_{job.id.hex}" for job in crew.jobs()] == [answer.json()["id"]]
