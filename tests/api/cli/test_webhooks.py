"""`lorry webhooks` against a live server, whose deliveries a real receiver gets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from standardwebhooks.webhooks import Webhook

from registry.secrets import SecretBox
from registry.settings import Settings
from registry.webhooks import outbox
from tests.api.cli.tenant import Tenant, live_tenant
from tests.receiver import Receiver, status
from tests.world import World
from workers.egress import Egress
from workers.webhooks import Sender


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
def tenant(monkeypatch: pytest.MonkeyPatch, settings: Settings, world: World, receiver: Receiver) -> Iterator[Tenant]:
    """A tenant of a server that lets webhooks go to the receiver, with an io worker in one thread."""
    open_settings = settings.model_copy(
        update={
            "webhook_allow_http": True,
            "webhook_allow_networks": "127.0.0.0/8",
            "webhook_ports": str(receiver.port),
        }
    )
    sender, over = Sender(world.db, SecretBox(settings), Egress(receiver.rules)), threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            with world.db.transaction() as session:
                picked = outbox.pick(session, 10)
            for delivery in picked:
                sender.deliver(delivery)

    thread = threading.Thread(target=work)
    thread.start()
    with live_tenant(monkeypatch, open_settings, world.key) as made:
        yield made
    over.set()
    thread.join(10)
    sender.close()


def added(tenant: Tenant, receiver: Receiver, *options: str) -> tuple[str, str]:
    """A new endpoint's id and secret."""
    answer = tenant("webhooks", "add", receiver.url, "--event", "batch.completed", *options)
    assert answer.status == 0, answer.err
    (secret,) = answer.out.split()
    listed = json.loads(tenant("webhooks", "list", "--json").out)
    return str(listed[0]["id"]), secret


def test_an_endpoint_is_added_tested_and_removed(tenant: Tenant, receiver: Receiver) -> None:
    endpoint, secret = added(tenant, receiver, "--name", "crm", "--results", "--payload", "thin")
    (shown,) = json.loads(tenant("webhooks", "list", "--json").out)
    assert (shown["name"], shown["deliver"], shown["payload"]) == ("crm", "results", "thin")
    sent = tenant("webhooks", "test", endpoint, "--event", "job.failed")
    assert (sent.status, sent.out) == (0, "The receiver answered 200.\n")
    (got,) = receiver.received
    assert got.event["type"] == "job.failed"
    Webhook(secret).verify(got.body, got.headers)
    assert tenant("webhooks", "remove", endpoint).status == 0
    assert "lorry webhooks add URL" in tenant("webhooks", "list").err


def test_a_receiver_that_refuses_is_status_1_and_in_the_log(tenant: Tenant, receiver: Receiver) -> None:
    endpoint, _ = added(tenant, receiver)
    receiver.answer = status(503)
    sent = tenant("webhooks", "test", endpoint)
    assert (sent.status, sent.out) == (1, "The receiver answered 503.\n")
    (delivery,) = json.loads(tenant("webhooks", "deliveries", endpoint, "--json").out)
    assert (delivery["status"], delivery["last_code"]) == ("exhausted", 503)
    assert delivery["id"] in tenant("webhooks", "deliveries", endpoint, "--status", "exhausted").out
    assert "No deliveries." in tenant("webhooks", "deliveries", endpoint, "--status", "delivered").err


def test_deliveries_are_sent_again_alone_or_since_a_moment(tenant: Tenant, receiver: Receiver) -> None:
    endpoint, _ = added(tenant, receiver)
    receiver.answer = status(500)
    tenant("webhooks", "test", endpoint)
    (delivery,) = json.loads(tenant("webhooks", "deliveries", endpoint, "--json").out)
    ranged = tenant("webhooks", "redeliver", endpoint, "--since", "2020-01-01")
    assert ranged.out == "1 deliveries are sent again.\n"
    alone = tenant("webhooks", "redeliver", endpoint, delivery["id"])
    assert alone.out == f"{delivery['id']} is sent again.\n"
    assert tenant("webhooks", "redeliver", endpoint).status == 2


def test_a_rotated_secret_is_printed_alone(tenant: Tenant, receiver: Receiver) -> None:
    endpoint, old = added(tenant, receiver)
    rotated = tenant("webhooks", "rotate", endpoint, "--keep-old")
    (new,) = rotated.out.split()
    assert new != old
    tenant("webhooks", "test", endpoint)
    (got,) = receiver.received
    for secret in (old, new):
        Webhook(secret).verify(got.body, got.headers)


def test_what_the_server_refuses_ends_with_3_and_its_words(tenant: Tenant) -> None:
    for command in (("test", "we_x"), ("rotate", "we_x"), ("remove", "we_x"), ("deliveries", "we_x")):
        answer = tenant("webhooks", *command)
        assert answer.status == 3
        assert "No such webhook endpoint" in answer.err
    answer = tenant("webhooks", "add", "https://hooks.example/x", "--event", "batch.done")
    assert answer.status == 3
    assert "[invalid_value]" in answer.err
