"""The io worker's Celery tasks: ids in, nothing out. A task never raises: the delivery's row says how it went."""

from __future__ import annotations

from registry.queues import DELIVER, celery_app
from registry.webhooks import event_ids
from workers import webhooks


@celery_app.task(name=DELIVER, ignore_result=True)  # type: ignore[untyped-decorator]
def deliver(wire_id: str) -> None:
    """Send one delivery, and others of its lane that are due."""
    webhooks.current().deliver(event_ids.from_wire(wire_id))
