"""What a delivery says, and that the usual libraries accept its signature."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import openai
import pytest
from pydantic import SecretStr
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from registry import jobs
from registry.errors import ConfigurationError
from registry.secrets import SecretBox
from registry.settings import Settings
from registry.shapes import job_view
from registry.webhooks import deliveries, endpoints, event_ids, outbox, payloads
from registry.webhooks.payloads import Message
from tests.hooks import BATCH_EVENTS, Hooks


def messages(hooks: Hooks, box: SecretBox | None = None) -> list[Message | None]:
    """Everything that is due, claimed and built."""
    made = []
    with hooks.db.transaction() as session:
        for delivery in outbox.pick(session, 100):
            claimed = outbox.claim(session, delivery)
            assert claimed is not None
            made.append(payloads.build(session, box or hooks.box, claimed))
    return made


def message(hooks: Hooks) -> Message:
    (made,) = messages(hooks)
    assert made is not None
    return made


def event(hooks: Hooks) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message(hooks).body)
    return found


def test_a_jobs_event_carries_the_job_as_get_shows_it(hooks: Hooks) -> None:
    hooks.endpoint()
    job = hooks.finished_job("요약: 프린터가 걸림 🙂", custom_id="t-1", metadata={"team": "ops"})
    sent = event(hooks)
    with hooks.db.transaction() as session:
        assert sent["data"] == job_view(jobs.get(session, "acme", job)).model_dump(mode="json")
    (row,) = hooks.deliveries()
    assert (sent["id"], sent["object"], sent["type"]) == (event_ids.to_wire(row.id), "event", "job.succeeded")
    assert sent["created_at"] == int(row.created_at.timestamp())
    assert datetime.fromisoformat(sent["timestamp"]) == row.created_at.replace(microsecond=sent_ms(row.created_at))


def sent_ms(moment: datetime) -> int:
    return moment.microsecond // 1000 * 1000


@pytest.mark.parametrize("answer", ["x", "x" * payloads.MAX_FULL_BYTES])
def test_a_thin_or_too_large_event_has_a_link_and_no_text(hooks: Hooks, answer: str) -> None:
    hooks.endpoint(payload="thin" if len(answer) == 1 else "full")
    hooks.finished_job(answer, custom_id="secret-name", metadata={"secret": "name"})
    sent = message(hooks)
    data = json.loads(sent.body)["data"]
    assert set(data) == {"id", "object", "status", "links"}
    assert data["links"]["self"] == f"/v1/jobs/{data['id']}"
    assert b"secret" not in sent.body


def test_the_signature_passes_the_reference_library_and_the_openai_client(hooks: Hooks) -> None:
    _, secret = hooks.endpoint()
    hooks.finished_job("한글 ✓")
    sent = message(hooks)
    assert Webhook(secret).verify(sent.body, sent.headers)["type"] == "job.succeeded"
    client = openai.OpenAI(api_key="x", webhook_secret=secret)
    assert client.webhooks.unwrap(sent.body, sent.headers).type == "job.succeeded"  # type: ignore[comparison-overlap]
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(sent.body.replace(b"succeeded", b"failedxxx"), sent.headers)
    with pytest.raises(openai.InvalidWebhookSignatureError):
        client.webhooks.unwrap(sent.body + b" ", sent.headers)


def test_the_headers_are_those_of_standard_webhooks(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    headers = message(hooks).headers
    assert headers["webhook-id"].startswith("evt_")
    assert abs(int(headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 5
    assert headers["webhook-signature"].startswith("v1,")
    assert (headers["webhook-attempt"], headers["content-type"]) == ("1", "application/json")
    assert headers["user-agent"].startswith("Lorry-Webhooks/")


def test_another_attempt_has_the_same_id_and_body_and_a_new_time(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.finished_job()
    first = message(hooks)
    hooks.sql("UPDATE webhook_deliveries SET state = 'pending'")
    second = message(hooks)
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    assert second.headers["webhook-attempt"] == "2"


def test_while_a_secret_rotates_both_secrets_verify_and_after_a_day_only_the_new_one(hooks: Hooks) -> None:
    endpoint, old = hooks.endpoint()
    with hooks.db.transaction() as session:
        _, new = endpoints.rotate(session, hooks.box, "acme", endpoint, keep_old=True)
    hooks.cancelled_job()
    sent = message(hooks)
    assert len(sent.headers["webhook-signature"].split(" ")) == 2
    for secret in (old, new):
        Webhook(secret).verify(sent.body, sent.headers)
        openai.OpenAI(api_key="x").webhooks.verify_signature(sent.body, sent.headers, secret=secret)
    hooks.sql("UPDATE webhook_endpoints SET old_secret_until = now() - interval '1 s'")
    hooks.cancelled_job()
    late = message(hooks)
    Webhook(new).verify(late.body, late.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(late.body, late.headers)


def test_a_batchs_event_has_counts_and_links(hooks: Hooks) -> None:
    hooks.endpoint(events=BATCH_EVENTS)
    batch, jobs_ = hooks.batch(3)
    hooks.run(jobs_)
    hooks.end_batch(batch)
    sent = event(hooks)
    assert sent["type"] == "batch.completed"
    wire_id = sent["data"]["id"]
    assert sent["data"] == {
        "id": wire_id,
        "object": "batch",
        "status": "completed",
        "links": {"self": f"/v1/batches/{wire_id}", "results": f"/v1/batches/{wire_id}/results"},
        "request_counts": {"total": 3, "completed": 3, "failed": 0, "cancelled": 0, "expired": 0},
    }


def test_a_job_that_was_deleted_since_is_announced_thin(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.finished_job()
    hooks.sql("DELETE FROM jobs")
    assert event(hooks)["data"]["status"] == "succeeded"


def test_an_inline_url_is_signed_with_the_tenants_inline_secret(hooks: Hooks) -> None:
    _, secret = hooks.inline()
    hooks.cancelled_job(webhook_url="https://other.example/cb")
    sent = message(hooks)
    assert sent.url == "https://other.example/cb"
    Webhook(secret).verify(sent.body, sent.headers)


def test_a_test_event_is_a_sample_of_nobodys_job(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    with hooks.db.transaction() as session:
        deliveries.add_test(session, endpoints.get(session, "acme", endpoint), "batch.expired")
    sent = event(hooks)
    assert sent["type"] == "batch.expired"
    assert sent["data"] == {"id": "batch_" + "0" * 32, "object": "batch", "status": "expired", "sample": True}


def test_nothing_is_built_for_a_disabled_endpoint(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    hooks.cancelled_job()
    hooks.sql(
        "UPDATE webhook_endpoints SET disabled_at = now(), disabled_reason = 'by_tenant' WHERE id = :id", id=endpoint
    )
    assert messages(hooks) == [None]


def test_a_secret_of_another_key_is_an_error_that_shows_nothing(hooks: Hooks, settings: Settings) -> None:
    _, secret = hooks.endpoint()
    hooks.cancelled_job()
    other = SecretBox(settings.model_copy(update={"secret_key": SecretStr("k" * 40)}))
    with pytest.raises(ConfigurationError) as caught:
        messages(hooks, other)
    assert secret not in str(caught.value)


def test_what_is_built_shows_neither_texts_nor_signatures_when_printed(hooks: Hooks) -> None:
    hooks.endpoint("https://hooks.example/token-in-path")
    hooks.finished_job("very secret text")
    shown = repr(message(hooks))
    assert "very secret" not in shown
    assert "token-in-path" not in shown
    assert "v1," not in shown
