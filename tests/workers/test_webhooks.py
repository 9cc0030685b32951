"""Sending, with a real receiver and the real database: what arrives, what is tried again, what is given up."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import openai
import pytest
from aiohttp import web
from openai.types.webhooks import BatchCompletedWebhookEvent
from sqlalchemy import func, select

from registry.ids import new_id
from registry.models import Batch
from registry.webhooks import outbox
from tests.hooks import BATCH_EVENTS, JOB_EVENTS, Hooks
from tests.receiver import Received, Receiver, status
from tests.registry.webhooks.test_schedule import SCHEDULE
from workers import webhooks
from workers.webhooks import Sender

ROOT = Path(__file__).parents[2]


def test_the_real_client_unwraps_what_a_real_receiver_got(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    _, secret = hooks.endpoint(receiver.url, (*JOB_EVENTS, *BATCH_EVENTS))
    job = hooks.finished_job("요약 ✓")
    batch, _ = hooks.batch(1)
    hooks.end_batch(batch)
    send_due()
    client = openai.OpenAI(api_key="x", webhook_secret=secret)
    events = {
        event.type: event for event in (client.webhooks.unwrap(got.body, got.headers) for got in receiver.received)
    }
    assert set(events) == {"job.succeeded", "batch.completed"}
    completed = events["batch.completed"]
    assert isinstance(completed, BatchCompletedWebhookEvent)
    assert completed.data.id == f"batch_{batch.hex}"
    assert receiver.received[0].event["data"]["id"] == f"job_{job.hex}"
    assert receiver.received[0].event["data"]["output"]["text"] == "요약 ✓"
    assert {row.state for row in hooks.deliveries()} == {"delivered"}


def test_an_endpoint_that_fails_for_ever_gets_ten_attempts_at_the_schedule(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    """Row 18. The clock is moved by moving the row's due time back to now."""
    receiver.answer = status(500)
    endpoint, _ = hooks.endpoint(receiver.url, BATCH_EVENTS)
    batch, _ = hooks.batch(1)
    hooks.end_batch(batch)
    waits = []
    while send_due():
        (row,) = hooks.deliveries(endpoint)
        if row.state == "pending":
            with hooks.db.transaction() as session:
                waits.append((row.due_at - session.scalars(select(func.now())).one()).total_seconds())
        hooks.sql("UPDATE webhook_deliveries SET due_at = now() WHERE state = 'pending'")
    (row,) = hooks.deliveries(endpoint)
    assert (row.state, row.attempts, len(receiver.received)) == ("exhausted", 10, 10)
    assert len(waits) == len(SCHEDULE)
    for wait_s, planned_s in zip(waits, SCHEDULE, strict=True):
        assert 0.8 * planned_s - 1 <= wait_s <= 1.2 * planned_s
    assert [got.headers["webhook-attempt"] for got in receiver.received] == [str(n) for n in range(1, 11)]
    assert len({got.headers["webhook-id"] for got in receiver.received}) == 1
    assert hooks.row(endpoint).disabled_at is None
    with hooks.db.transaction() as session:
        assert session.get_one(Batch, batch).status == "completed"


def test_five_days_of_nothing_but_failures_disable_an_endpoint(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    receiver.answer = status(503)
    endpoint, _ = hooks.endpoint(receiver.url)
    for days, disabled in ((0, False), (4.9, False), (5.1, True)):
        hooks.sql("UPDATE webhook_endpoints SET failing_since = now() - make_interval(hours => :h)", h=int(days * 24))
        hooks.cancelled_job()
        send_due()
        assert (hooks.row(endpoint).disabled_reason == "failing") is disabled
    assert {row.state for row in hooks.deliveries(endpoint)} == {"exhausted"}


def test_one_success_in_five_days_keeps_an_endpoint(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    endpoint, _ = hooks.endpoint(receiver.url)
    hooks.sql("UPDATE webhook_endpoints SET failing_since = now() - interval '6 days'")
    hooks.cancelled_job()
    send_due()
    assert (hooks.row(endpoint).disabled_at, hooks.row(endpoint).failing_since) == (None, None)


def test_gone_disables_at_once(hooks: Hooks, receiver: Receiver, send_due: Callable[[], int]) -> None:
    receiver.answer = status(410)
    endpoint, _ = hooks.endpoint(receiver.url)
    for _ in range(3):
        hooks.cancelled_job()
    send_due()
    assert hooks.row(endpoint).disabled_reason == "gone"
    assert {row.state for row in hooks.deliveries(endpoint)} == {"exhausted"}
    assert len(receiver.received) == 1


def test_gone_from_an_inline_url_ends_that_delivery_only(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    receiver.answer = status(410)
    inline, _ = hooks.inline()
    hooks.cancelled_job(webhook_url=receiver.url)
    send_due()
    assert hooks.row(inline).disabled_at is None
    assert [row.state for row in hooks.deliveries(inline)] == ["exhausted"]


def test_too_many_requests_waits_as_long_as_asked(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    receiver.answer = status(429, Retry_After="120")
    hooks.endpoint(receiver.url)
    hooks.cancelled_job()
    send_due()
    (row,) = hooks.deliveries()
    with hooks.db.transaction() as session:
        assert row.due_at - session.scalars(select(func.now())).one() >= timedelta(seconds=118)


def test_a_url_that_is_not_allowed_any_more_fails_with_a_reason(hooks: Hooks, send_due: Callable[[], int]) -> None:
    hooks.endpoint("https://hooks.example:22/")
    hooks.endpoint("http://127.0.0.1:1/")
    hooks.cancelled_job()
    send_due()
    assert {row.log[0]["error"] for row in hooks.deliveries()} == {"url_port"}
    assert {row.state for row in hooks.deliveries()} == {"pending"}


def test_a_lane_is_emptied_by_one_message(
    hooks: Hooks, receiver: Receiver, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "IN_A_ROW", 5)
    hooks.endpoint(receiver.url)
    for _ in range(12):
        hooks.cancelled_job()
    with hooks.db.transaction() as session:
        first = outbox.pick(session, 1)[0]
    sender.deliver(first)
    assert len(receiver.received) == 5
    sender.drain()
    with hooks.db.transaction() as session:
        second = outbox.pick(session, 1)[0]
    sender.deliver(second)
    assert len(receiver.received) == 6


def test_never_more_than_four_at_once_at_an_endpoint(hooks: Hooks, receiver: Receiver, sender: Sender) -> None:
    async def slowly(received: Received, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.02)
        return web.Response()

    receiver.answer = slowly
    hooks.endpoint(receiver.url)
    for _ in range(40):
        hooks.cancelled_job()
    while any(row.state == "pending" for row in hooks.deliveries()):
        with hooks.db.transaction() as session:
            picked = outbox.pick(session, 100)
        threads = [threading.Thread(target=sender.deliver, args=(delivery,)) for delivery in picked]
        for thread in threads:
            thread.start()
        with hooks.db.transaction() as session:
            assert outbox.pick(session, 100) == []
        for thread in threads:
            thread.join(20)
    assert receiver.most_at_once == 4
    assert Counter(got.headers["webhook-id"] for got in receiver.received).most_common(1)[0][1] == 1


def test_a_stale_or_unknown_message_is_harmless(hooks: Hooks, receiver: Receiver, sender: Sender) -> None:
    hooks.endpoint(receiver.url)
    hooks.cancelled_job()
    (row,) = hooks.deliveries()
    sender.deliver(row.id)
    sender.deliver(new_id())
    assert receiver.received == []
    assert [row.state for row in hooks.deliveries()] == ["pending"]


def test_an_endpoint_deleted_while_its_delivery_is_under_way_leaves_nothing(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int]
) -> None:
    async def delete(received: Received, request: web.Request) -> web.StreamResponse:
        await asyncio.to_thread(hooks.sql, "DELETE FROM webhook_endpoints")
        return web.Response(status=500)

    receiver.answer = delete
    hooks.endpoint(receiver.url)
    hooks.cancelled_job()
    assert send_due() == 1
    assert hooks.deliveries() == []


def test_no_word_of_job_receiver_or_url_is_logged(
    hooks: Hooks, receiver: Receiver, send_due: Callable[[], int], capfd: pytest.CaptureFixture[str]
) -> None:
    async def chatty(received: Received, request: web.Request) -> web.StreamResponse:
        return web.Response(status=400, text=received.body.decode(), reason="said-by-receiver")

    receiver.answer = chatty
    _, secret = hooks.endpoint(receiver.url + "/token-in-path")
    hooks.finished_job("text-of-tenant", custom_id="id-of-tenant")
    send_due()
    out, err = capfd.readouterr()
    stored = str([row.log for row in hooks.deliveries()])
    for word in ("text-of-tenant", "id-of-tenant", "token-in-path", "said-by-receiver", secret, secret[6:]):
        assert word not in out + err + stored
    assert '"code": 400' in stored.replace("'", '"')
