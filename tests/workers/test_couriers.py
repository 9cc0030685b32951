"""The dispatcher's chores for webhooks, against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import Celery

from registry import queues
from registry.queues import DELIVERIES, make_celery
from registry.settings import Settings
from registry.webhooks import event_ids
from tests.hooks import Hooks
from workers.couriers import Couriers
from workers.leader import Leader


@pytest.fixture
def leader(hooks: Hooks) -> Iterator[Leader]:
    made = Leader(hooks.db.engine)
    assert made.try_to_lead()
    yield made
    made.resign()


@pytest.fixture
def couriers(celery: Celery) -> Couriers:
    return Couriers(celery, resend_after_s=0.0, lease_s=30.0)


def states(hooks: Hooks) -> list[str]:
    return [row.state for row in hooks.deliveries()]


def test_due_deliveries_go_to_their_queue_by_their_ids(
    hooks: Hooks, leader: Leader, couriers: Couriers, celery: Celery
) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    couriers.send(leader)
    couriers.send(leader)
    assert queues.waiting(celery, DELIVERIES) == {event_ids.to_wire(row.id) for row in hooks.deliveries()}
    assert states(hooks) == ["sent"]


def test_what_waits_in_the_queue_is_not_lost_however_old(hooks: Hooks, leader: Leader, couriers: Couriers) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    couriers.send(leader)
    hooks.sql("UPDATE webhook_deliveries SET sent_at = now() - interval '1 day'")
    couriers.repair(leader)
    couriers.repair(leader)
    assert states(hooks) == ["sent"]


def test_what_is_missing_from_the_queue_twice_is_sent_again(
    hooks: Hooks, leader: Leader, couriers: Couriers, celery: Celery
) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    couriers.send(leader)
    with celery.connection_or_acquire() as connection:
        connection.default_channel.client.delete(DELIVERIES)
    hooks.sql("UPDATE webhook_deliveries SET sent_at = now() - interval '1 s'")
    couriers.repair(leader)
    assert states(hooks) == ["sent"]
    couriers.repair(leader)
    assert states(hooks) == ["pending"]


def test_a_dead_senders_delivery_is_freed_after_its_lease(hooks: Hooks, leader: Leader, couriers: Couriers) -> None:
    hooks.endpoint()
    hooks.cancelled_job()
    hooks.sql("UPDATE webhook_deliveries SET state = 'sending', claimed_at = now() - interval '29 s'")
    couriers.repair(leader)
    assert states(hooks) == ["sending"]
    hooks.sql("UPDATE webhook_deliveries SET claimed_at = now() - interval '31 s'")
    couriers.repair(leader)
    assert states(hooks) == ["pending"]


def test_a_broker_that_is_away_costs_nothing_but_time(hooks: Hooks, leader: Leader, settings: Settings) -> None:
    away = make_celery(settings.model_copy(update={"broker_url": "redis://127.0.0.1:1/0"}))
    couriers = Couriers(away, resend_after_s=0.0, lease_s=30.0)
    hooks.endpoint()
    hooks.cancelled_job()
    couriers.send(leader)
    assert states(hooks) == ["sent"]
    couriers.repair(leader)
    assert states(hooks) == ["sent"]
    away.close()
