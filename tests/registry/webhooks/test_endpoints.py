"""A tenant's receivers."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import text

from registry.errors import Conflict, NotFound
from registry.ids import new_id
from registry.webhooks import endpoints
from tests.hooks import Hooks


def test_a_secret_is_whsec_and_32_bytes_and_is_stored_sealed(hooks: Hooks) -> None:
    endpoint, secret = hooks.endpoint()
    row = hooks.row(endpoint)
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=", secret)
    assert secret[6:].encode() not in row.secret
    assert hooks.box.open(row.secret, endpoints.owner(endpoint)) == secret
    assert row.secret_hint == f"whsec_...{secret[-4:]}"


def test_a_rotation_keeps_the_old_secret_for_a_day_if_asked(hooks: Hooks) -> None:
    endpoint, old = hooks.endpoint()
    with hooks.db.transaction() as session:
        _, new = endpoints.rotate(session, hooks.box, "acme", endpoint, keep_old=True)
    row = hooks.row(endpoint)
    assert row.old_secret is not None
    assert row.old_secret_until is not None
    assert hooks.box.open(row.old_secret, endpoints.owner(endpoint)) == old != new
    assert 23.9 * 3600 < (row.old_secret_until - row.updated_at).total_seconds() < 24.1 * 3600
    with hooks.db.transaction() as session:
        endpoints.rotate(session, hooks.box, "acme", endpoint, keep_old=False)
    assert hooks.row(endpoint).old_secret is None


def test_an_unchanged_update_leaves_the_time_of_the_last_change(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    before = hooks.row(endpoint)
    with hooks.db.transaction() as session:
        endpoints.change(session, "acme", endpoint, {"name": "test", "url": before.url})
    assert hooks.row(endpoint).updated_at == before.updated_at
    with hooks.db.transaction() as session:
        endpoints.change(session, "acme", endpoint, {"name": "another", "event_types": ["batch.failed"]})
    after = hooks.row(endpoint)
    assert (after.name, after.event_types) == ("another", ["batch.failed"])
    assert after.updated_at > before.updated_at


def test_foreign_and_missing_endpoints_answer_alike(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint(tenant="globex")
    words = set()
    for unknown in (endpoint, new_id()):
        with pytest.raises(NotFound) as caught, hooks.db.transaction() as session:
            endpoints.get(session, "acme", unknown)
        words.add(str(caught.value))
    assert len(words) == 1


def test_a_tenant_has_one_inline_endpoint_which_is_neither_changed_nor_deleted(hooks: Hooks) -> None:
    inline, _ = hooks.inline()
    assert hooks.inline()[0] == inline
    with pytest.raises(Conflict), hooks.db.transaction() as session:
        endpoints.remove(session, "acme", inline)
    with pytest.raises(Conflict), hooks.db.transaction() as session:
        endpoints.change(session, "acme", inline, {"url": "https://x.example/"})


def test_there_is_a_most_of_endpoints(hooks: Hooks) -> None:
    for _ in range(endpoints.MAX_ENDPOINTS):
        hooks.endpoint()
    with pytest.raises(Conflict):
        hooks.endpoint()


def test_enabling_starts_the_five_days_anew(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    hooks.sql("UPDATE webhook_endpoints SET failing_since = now() - interval '9 days'")
    with hooks.db.transaction() as session:
        endpoints.disable(session, "acme", endpoint, "failing")
    assert hooks.row(endpoint).disabled_reason == "failing"
    with hooks.db.transaction() as session:
        endpoints.enable(session, "acme", endpoint)
    row = hooks.row(endpoint)
    assert (row.disabled_at, row.disabled_reason, row.failing_since) == (None, None, None)


def test_deleting_takes_the_deliveries_along(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    hooks.cancelled_job()
    with hooks.db.transaction() as session:
        endpoints.remove(session, "acme", endpoint)
        assert session.scalar(text("SELECT count(*) FROM webhook_deliveries")) == 0
