"""A sender that dies between the post and the note: the event is sent again, under the same id."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from registry.settings import Settings, child_environment
from registry.webhooks import outbox
from tests.e2e.crew import eventually
from tests.hooks import Hooks
from tests.receiver import Received, Receiver, status

ROOT = Path(__file__).parents[2]


def alive(child: int) -> bool:
    return Path(f"/proc/{child}").exists()


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.long)])
def test_senders_killed_before_they_can_note_the_answer_lose_no_event(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int], settings: Settings, kills: int
) -> None:
    """Row 20: the receiver has the event and kills the sender before it answers."""
    hooks.endpoint(receiver.url)
    for _ in range(kills):
        hooks.cancelled_job()
    children: dict[int, int] = {}

    async def kill(received: Received, request: web.Request) -> web.StreamResponse:
        await asyncio.to_thread(eventually, lambda: received.number in children, every_s=0.002)
        os.kill(children[received.number], signal.SIGKILL)
        return web.Response()

    receiver.answer = kill
    environment = child_environment(
        LORRY_DATABASE_URL=settings.resolved_database_url, LORRY_DATA_DIR=str(settings.data_dir)
    )
    command = [sys.executable, "-m", "tests.workers.sender_nursery", str(receiver.port)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for number in range(kills):
            with hooks.db.transaction() as session:
                (picked,) = outbox.pick(session, 1)
            nursery.stdin.write(f"{picked}\n")
            nursery.stdin.flush()
            children[number] = int(nursery.stdout.readline())
            eventually(lambda: len(receiver.received) > number and not alive(children[number]), every_s=0.005)  # noqa: B023
            hooks.sql("UPDATE webhook_deliveries SET claimed_at = now() - interval '1 h' WHERE state = 'sending'")
            hooks.sql("UPDATE webhook_deliveries SET due_at = now() + interval '1 h' WHERE id = :id", id=picked)
            with hooks.db.transaction() as session:
                assert outbox.take_back(session, 30.0) == [picked]
            hooks.sql("UPDATE webhook_deliveries SET due_at = now() + interval '1 h' WHERE id = :id", id=picked)
        nursery.stdin.close()
    receiver.answer = status(200)
    hooks.sql("UPDATE webhook_deliveries SET due_at = now()")
    while send_due():
        pass
    seen = Counter(got.headers["webhook-id"] for got in receiver.received)
    assert len(seen) == kills
    assert set(seen.values()) == {2}
    assert {(row.state, row.attempts) for row in hooks.deliveries()} == {("delivered", 2)}
