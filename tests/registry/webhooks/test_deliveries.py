"""The delivery log: what is sent again, and what is forgotten."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

from registry.webhooks import deliveries, outbox
from tests.hooks import Hooks


def add(hooks: Hooks, endpoint: uuid.UUID, state: str, days_old: float) -> None:
    hooks.sql(
        """INSERT INTO webhook_deliveries
               (id, tenant_id, endpoint_id, type, lane, state, failures, created_at, delivered_at)
           SELECT uuidv7(-age), 'acme', :endpoint, 'job.failed', 'x', :state, 9, now() - age, now()
           FROM (SELECT make_interval(mins => :minutes) AS age) AS a""",
        endpoint=endpoint,
        state=state,
        minutes=int(days_old * 24 * 60),
    )


def replay(hooks: Hooks, endpoint: uuid.UUID, days: float, until: float = 0, **how: str) -> int:
    now = datetime.now(UTC)
    with hooks.db.transaction() as session:
        return deliveries.replay(
            session,
            "acme",
            endpoint,
            now - timedelta(days=days),
            now - timedelta(days=until) if until else None,
            how.get("status", "exhausted"),  # type: ignore[arg-type]
        )


def test_dead_letters_of_a_time_range_are_sent_again_with_all_their_attempts(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    other, _ = hooks.endpoint()
    for days_old, state in ((9, "exhausted"), (5, "exhausted"), (5, "delivered"), (1, "exhausted"), (1, "sending")):
        add(hooks, endpoint, state, days_old)
    add(hooks, other, "exhausted", 5)
    assert replay(hooks, endpoint, 7, until=3) == 1
    assert replay(hooks, endpoint, 7) == 1
    again = [row for row in hooks.deliveries(endpoint) if row.state == "pending"]
    assert [row.failures for row in again] == [0, 0]
    assert replay(hooks, endpoint, 30, status="all") == 4
    assert sorted(row.state for row in hooks.deliveries(endpoint)) == ["pending"] * 4 + ["sending"]
    assert [row.state for row in hooks.deliveries(other)] == ["exhausted"]


def test_deliveries_are_forgotten_after_thirty_days(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    for days_old in (0, 29.9, 30.1, 300):
        add(hooks, endpoint, "delivered", days_old)
    with hooks.db.transaction() as session:
        assert deliveries.purge(session) == 2
        assert deliveries.purge(session) == 0
    assert len(hooks.deliveries()) == 2


def test_what_is_under_way_is_not_sent_twice_by_a_redelivery(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    hooks.cancelled_job()
    with hooks.db.transaction() as session:
        (delivery,) = outbox.pick(session, 1)
        assert deliveries.redeliver(session, "acme", endpoint, delivery).state == "sent"
