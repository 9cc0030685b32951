"""The way of a delivery, its limits, and what is freed when somebody dies."""

from __future__ import annotations

import uuid
from collections import Counter

from registry.webhooks import outbox
from registry.webhooks.outbox import Claimed
from registry.webhooks.schedule import Answer, judge
from tests.hooks import Hooks

OK = Answer(200, None, 3.0)
BROKEN = Answer(500, None, 3.0)


def pick(hooks: Hooks, wanted: int = 100) -> list[uuid.UUID]:
    with hooks.db.transaction() as session:
        return list(outbox.pick(session, wanted))


def claim(hooks: Hooks, delivery: uuid.UUID) -> Claimed | None:
    with hooks.db.transaction() as session:
        return outbox.claim(session, delivery)


def taken(hooks: Hooks) -> Claimed:
    (delivery,) = pick(hooks)
    claimed = claim(hooks, delivery)
    assert claimed is not None
    return claimed


def settle(hooks: Hooks, claimed: Claimed, answer: Answer) -> str | None:
    with hooks.db.transaction() as session:
        return outbox.settle(session, claimed, answer, judge(answer, claimed.failures, 0.0))


def fill(hooks: Hooks, lane: str, count: int, tenant: str = "acme") -> None:
    endpoint, _ = hooks.endpoint(tenant=tenant)
    hooks.sql(
        """INSERT INTO webhook_deliveries (tenant_id, endpoint_id, type, lane)
           SELECT :tenant, :endpoint, 'job.failed', :lane FROM generate_series(1, :count)""",
        tenant=tenant,
        endpoint=endpoint,
        lane=lane,
        count=count,
    )


def test_a_delivery_goes_its_way_once(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    hooks.cancelled_job()
    (delivery,) = pick(hooks)
    assert pick(hooks) == []
    first, second = claim(hooks, delivery), claim(hooks, delivery)
    assert first is not None
    assert second is None
    assert settle(hooks, first, OK) == "registered"
    (row,) = hooks.deliveries(endpoint)
    assert (row.state, row.attempts, row.fence) == ("delivered", 1, 1)
    assert [(entry["code"], entry["error"], entry["latency_ms"]) for entry in row.log] == [(200, None, 3.0)]


def test_a_late_sender_changes_nothing(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    late = taken(hooks)
    hooks.sql("UPDATE webhook_deliveries SET claimed_at = now() - interval '31 s'")
    with hooks.db.transaction() as session:
        assert outbox.take_back(session, 30.0) == [late.id]
    again = taken(hooks)
    assert (again.id, again.attempts) == (late.id, 2)
    assert settle(hooks, late, BROKEN) is None
    assert settle(hooks, again, OK) == "registered"


def test_a_sender_within_its_lease_keeps_its_delivery(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    taken(hooks)
    with hooks.db.transaction() as session:
        assert outbox.take_back(session, 30.0) == []


def test_a_lost_message_is_sent_again(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    (delivery,) = pick(hooks)
    with hooks.db.transaction() as session:
        assert outbox.overdue(session, 60.0) == set()
        assert outbox.overdue(session, 0.0) == {delivery}
        assert outbox.message_lost(session, [delivery]) == [delivery]
    assert pick(hooks) == [delivery]


def test_four_of_a_lane_and_sixteen_of_a_tenant_are_under_way_at_most(hooks: Hooks) -> None:
    for number in range(6):
        fill(hooks, f"lane {number}", 10)
    fill(hooks, "other", 10, tenant="globex")
    pick(hooks)
    assert pick(hooks) == []
    flying = Counter((row.tenant_id, row.lane) for row in hooks.deliveries() if row.state == "sent")
    assert max(flying.values()) == outbox.PER_LANE == 4
    assert sum(n for (tenant, _), n in flying.items() if tenant == "acme") == outbox.PER_TENANT == 16
    assert flying["globex", "other"] == 4


def test_a_long_backlog_of_one_lane_hides_no_other(hooks: Hooks) -> None:
    fill(hooks, "a", 5000)
    fill(hooks, "b", 1, tenant="globex")
    hooks.sql("UPDATE webhook_deliveries SET due_at = now() - interval '1 h' WHERE lane = 'a'")
    assert len(pick(hooks, wanted=5)) == 5
    lanes = {row.lane for row in hooks.deliveries() if row.state == "sent"}
    assert lanes == {"a", "b"}


def test_the_next_of_a_lane_takes_the_place_of_the_settled_one(hooks: Hooks) -> None:
    fill(hooks, "a", 6)
    claimed = claim(hooks, pick(hooks)[0])
    assert claimed is not None
    with hooks.db.transaction() as session:
        outbox.settle(session, claimed, OK, judge(OK, 0, 0.0))
        following = outbox.claim_next(session, "a")
    assert following is not None
    assert following.id != claimed.id
    assert Counter(row.state for row in hooks.deliveries()) == {"sent": 3, "sending": 1, "delivered": 1, "pending": 1}


def test_what_is_not_due_waits(hooks: Hooks) -> None:
    fill(hooks, "a", 1)
    hooks.sql("UPDATE webhook_deliveries SET due_at = now() + interval '1 h'")
    assert pick(hooks) == []
    with hooks.db.transaction() as session:
        assert outbox.claim_next(session, "a") is None


def test_an_endpoint_is_failing_from_its_first_failure_to_its_next_success(hooks: Hooks) -> None:
    endpoint, _ = hooks.endpoint()
    hooks.cancelled_job()
    settle(hooks, taken(hooks), BROKEN)
    since = hooks.row(endpoint).failing_since
    assert since is not None
    hooks.cancelled_job()
    settle(hooks, taken(hooks), BROKEN)
    assert hooks.row(endpoint).failing_since == since
    hooks.cancelled_job()
    settle(hooks, taken(hooks), OK)
    assert hooks.row(endpoint).failing_since is None


def test_the_log_keeps_the_last_attempts_below_a_kilobyte(hooks: Hooks) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    for number in range(15):
        hooks.sql("UPDATE webhook_deliveries SET state = 'pending', due_at = now()")
        settle(hooks, taken(hooks), Answer(None, "connect_timeout", float(number)))
    (row,) = hooks.deliveries()
    assert [entry["latency_ms"] for entry in row.log] == [float(number) for number in range(3, 15)]
    assert len(str(row.log)) < 1300
