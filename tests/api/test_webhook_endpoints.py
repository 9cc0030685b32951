"""/v1/webhook_endpoints by the official client, and by plain requests for what Lorry adds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import openai
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from registry.secrets import SecretBox
from registry.settings import Settings
from registry.webhooks import event_ids, outbox
from registry.webhooks.event_types import EVENT_TYPES
from tests.api.live import LiveApi
from tests.e2e.crew import eventually
from tests.hooks import Hooks
from tests.receiver import Receiver, status
from tests.world import World
from workers.egress import Egress
from workers.webhooks import Sender

ADDRESS = "/v1/webhook_endpoints"
GOOD = {"name": "crm", "url": "https://hooks.example/x", "event_types": ["job.succeeded"]}


@pytest.fixture
def hooks(world: World, settings: Settings) -> Hooks:
    return Hooks(world, SecretBox(settings))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
def io_worker(hooks: Hooks, receiver: Receiver) -> Iterator[None]:
    """Dispatcher and io worker in one thread."""
    sender, over = Sender(hooks.db, hooks.box, Egress(receiver.rules)), threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            with hooks.db.transaction() as session:
                picked = outbox.pick(session, 10)
            for delivery in picked:
                sender.deliver(delivery)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join(10)
    sender.close()


@pytest.fixture
def lenient(app: FastAPI, receiver: Receiver) -> Iterator[None]:
    """The API lets endpoints be on this test's receiver."""
    services = app.state.services
    services.webhook_rules, kept = receiver.rules, services.webhook_rules
    yield
    services.webhook_rules = kept


def test_the_official_client_manages_endpoints(settings: Settings, world: World) -> None:
    with LiveApi(settings) as live:
        client = openai.OpenAI(api_key=world.key("acme"), base_url=f"{live.url}/v1", max_retries=0)
        made = client.webhooks.create(name="a", url="https://hooks.example/a", event_types=["batch.completed"])
        assert made.signing_secret.startswith("whsec_")
        assert made.object == "webhook_endpoint"
        found = client.webhooks.retrieve(made.id)
        assert (found.name, found.event_types, found.signing_secret_hint) == (
            "a",
            ["batch.completed"],
            made.signing_secret_hint,
        )
        assert not hasattr(found, "signing_secret")
        changed = client.webhooks.update(made.id, name="b", event_types=["batch.failed"])
        assert (changed.name, changed.url, changed.event_types) == ("b", "https://hooks.example/a", ["batch.failed"])
        rotated = client.webhooks.rotate_secret(made.id, keep_old_secret_active_for_24_hours=True)
        assert rotated.signing_secret != made.signing_secret
        more = [client.webhooks.create(name="n", url="https://x.example", event_types=["batch.failed"]) for _ in "abc"]
        listed = [endpoint.id for endpoint in client.webhooks.list(limit=2)]
        assert listed == [*reversed([endpoint.id for endpoint in more]), made.id]
        assert set(client.webhooks.event_types.list().data) == set(EVENT_TYPES)
        gone = client.webhooks.delete(made.id)
        assert (gone.deleted, gone.object) == (True, "webhook_endpoint.deleted")
        with pytest.raises(openai.NotFoundError):
            client.webhooks.retrieve(made.id)


@pytest.mark.usefixtures("io_worker", "lenient")
def test_a_test_event_answers_with_the_receivers_status(acme: TestClient, receiver: Receiver) -> None:
    made = acme.post(ADDRESS, json={**GOOD, "url": receiver.url}).json()
    for code in (200, 404):
        receiver.answer = status(code)
        answer = acme.post(f"{ADDRESS}/{made['id']}/test", json={"event_type": "batch.completed"})
        assert answer.json() == {
            "object": "webhook_endpoint.test",
            "webhook_endpoint_id": made["id"],
            "event_type": "batch.completed",
            "status_code": code,
            "success": True,
        }
    openai.OpenAI(api_key="x").webhooks.verify_signature(
        receiver.received[0].body, receiver.received[0].headers, secret=made["signing_secret"]
    )
    log = acme.get(f"{ADDRESS}/{made['id']}/deliveries").json()["data"]
    assert [(entry["status"], entry["last_code"], entry["attempts"]) for entry in log] == [
        ("exhausted", 404, 1),
        ("delivered", 200, 1),
    ]


@pytest.mark.usefixtures("io_worker")
def test_a_receiver_that_cannot_be_reached_fails_the_test_with_the_reason(acme: TestClient, hooks: Hooks) -> None:
    made = acme.post(ADDRESS, json=GOOD).json()
    hooks.sql("UPDATE webhook_endpoints SET url = 'https://hooks.example:22/'")
    answer = acme.post(f"{ADDRESS}/{made['id']}/test", json={"event_type": "job.failed"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (424, "webhook_test_failed")
    assert "url_port" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"url": "http://hooks.example/"}, "url"),
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": "https://localhost/"}, "url"),
        ({"url": "https://2130706433/"}, "url"),
        ({"url": "https://u@hooks.example/"}, "url"),
        ({"event_types": []}, None),
        ({"event_types": ["job.exploded"]}, "event_types[0]"),
        ({"payload": "medium"}, "payload"),
        ({"name": ""}, "name"),
        ({"extra": 1}, "extra"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field(acme: TestClient, change: dict[str, object], param: str | None) -> None:
    answer = acme.post(ADDRESS, json={**GOOD, **change})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    made = acme.post(ADDRESS, json=GOOD).json()
    if param != "extra":
        assert acme.post(f"{ADDRESS}/{made['id']}", json=change).status_code == 400


def test_an_endpoint_is_disabled_and_enabled_by_its_status(acme: TestClient) -> None:
    made = acme.post(ADDRESS, json={**GOOD, "deliver": "results", "payload": "thin"}).json()
    assert (made["status"], made["deliver"], made["payload"]) == ("enabled", "results", "thin")
    off = acme.post(f"{ADDRESS}/{made['id']}", json={"status": "disabled"}).json()
    assert (off["status"], off["disabled_reason"]) == ("disabled", "by_tenant")
    assert acme.post(f"{ADDRESS}/{made['id']}/test", json={"event_type": "job.failed"}).status_code == 409
    assert acme.post(f"{ADDRESS}/{made['id']}/redeliver?since=0").status_code == 409
    on = acme.post(f"{ADDRESS}/{made['id']}", json={"status": "enabled"}).json()
    assert (on["status"], on["disabled_reason"]) == ("enabled", None)


@pytest.mark.usefixtures("io_worker", "lenient")
def test_dead_letters_are_sent_again_one_or_all_of_a_time(acme: TestClient, hooks: Hooks, receiver: Receiver) -> None:
    made = acme.post(ADDRESS, json={**GOOD, "url": receiver.url, "event_types": ["job.cancelled"]}).json()
    address = f"{ADDRESS}/{made['id']}"
    jobs = [acme.post("/v1/jobs", json={"model": "Tiny", "document": "x"}).json()["id"] for _ in range(3)]
    acme.post(address, json={"status": "disabled"})
    for job in jobs:
        acme.post(f"/v1/jobs/{job}/cancel")
    dead = acme.get(f"{address}/deliveries?status=exhausted").json()["data"]
    assert [entry["subject_id"] for entry in dead] == list(reversed(jobs))
    acme.post(address, json={"status": "enabled"})
    again = acme.post(f"{address}/deliveries/{dead[0]['id']}/redeliver").json()
    assert (again["id"], again["status"]) == (dead[0]["id"], "pending")
    eventually(lambda: len(receiver.received) == 1)
    assert receiver.received[0].headers["webhook-id"] == dead[0]["id"]
    eventually(lambda: acme.get(f"{address}/deliveries").json()["data"][0]["status"] == "delivered")
    assert acme.post(f"{address}/redeliver?since=4102444800").json()["count"] == 0
    assert acme.post(f"{address}/redeliver?since=0").json()["count"] == 2
    eventually(lambda: len(receiver.received) == 3)
    eventually(lambda: {e["status"] for e in acme.get(f"{address}/deliveries").json()["data"]} == {"delivered"})
    assert acme.post(f"{address}/redeliver?since=0&status=all").json()["count"] == 3
    eventually(lambda: len(receiver.received) == 6)


@pytest.mark.usefixtures("io_worker", "lenient")
def test_a_jobs_own_url_is_signed_by_the_inline_endpoint(acme: TestClient, receiver: Receiver) -> None:
    body = {"model": "Tiny", "document": "x", "webhook_url": receiver.url}
    job = acme.post("/v1/jobs", json=body).json()["id"]
    (inline,) = acme.get(ADDRESS).json()["data"]
    assert (inline["kind"], inline["url"]) == ("inline", "")
    secret = acme.post(f"{ADDRESS}/{inline['id']}/rotate_secret", json={}).json()["signing_secret"]
    acme.post(f"/v1/jobs/{job}/cancel")
    eventually(lambda: receiver.received)
    event = openai.OpenAI(api_key="x").webhooks.unwrap(
        receiver.received[0].body, receiver.received[0].headers, secret=secret
    )
    assert event.type == "job.cancelled"  # type: ignore[comparison-overlap]
    assert acme.delete(f"{ADDRESS}/{inline['id']}").status_code == 409


def test_a_jobs_bad_url_is_refused_before_the_job_is_stored(acme: TestClient) -> None:
    for url in (f"https://{'127.1'}/", "http://hooks.example/", "nonsense"):
        answer = acme.post("/v1/jobs", json={"model": "Tiny", "document": "x", "webhook_url": url})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "webhook_url")
    assert acme.get("/v1/jobs").json()["data"] == []
    assert acme.get(ADDRESS).json()["data"] == []


def test_deliveries_page_by_the_last_id(acme: TestClient, hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    for _ in range(5):
        hooks.cancelled_job()
    address = f"{ADDRESS}/we_{endpoint.hex}/deliveries"
    first = acme.get(f"{address}?limit=3").json()
    rest = acme.get(f"{address}?limit=3&after={first['last_id']}").json()
    assert (len(first["data"]), first["has_more"], len(rest["data"]), rest["has_more"]) == (3, True, 2, False)
    assert acme.get(f"{address}?after=evt_{'0' * 26}").status_code == 400
    assert acme.get(f"{ADDRESS}?after=we_nonsense").status_code == 400


def test_one_tenants_delivery_is_not_sent_again_through_anothers_endpoint(
    as_tenant: Callable[[str], TestClient], hooks: Hooks
) -> None:
    hooks.endpoint(tenant="globex")
    mine, _ = hooks.endpoint(tenant="acme")
    hooks.cancelled_job("globex")
    (row,) = hooks.deliveries()
    address = f"{ADDRESS}/we_{mine.hex}/deliveries/{event_ids.to_wire(row.id)}/redeliver"
    assert as_tenant("acme").post(address).status_code == 404
