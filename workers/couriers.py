"""What the dispatcher does for webhooks: cut result chunks, send due deliveries' ids, free what was lost, forget."""

from __future__ import annotations

import uuid

from celery import Celery

from registry import queues
from registry.logs import get_logger
from registry.webhooks import deliveries, event_ids, outbox, streams
from workers.leader import Leader

A_ROUND = 64
"""Deliveries sent by one round at most: half of what the io worker's threads take."""

_log = get_logger("couriers")


class Couriers:
    """The dispatcher's hands for deliveries; each method is a chore."""

    def __init__(self, celery: Celery, *, resend_after_s: float, lease_s: float) -> None:
        self._celery = celery
        self._age_s = resend_after_s
        self._lease_s = lease_s
        self._suspects: set[uuid.UUID] = set()
        self._cut_last: streams.Place = streams.START

    def send(self, leader: Leader) -> None:
        """Put the ids of due deliveries on their queue, after the commit that says so."""
        with leader.transaction() as session:
            picked = outbox.pick(session, A_ROUND)
        try:
            queues.send_deliveries(self._celery, [event_ids.to_wire(delivery_id) for delivery_id in picked])
        except queues.AWAY as error:
            _log.warning("the broker is away; deliveries wait", error=type(error).__name__)

    def cut(self, leader: Leader) -> None:
        """Make deliveries of batches' finished lines."""
        with leader.transaction() as session:
            self._cut_last = streams.cut(session, self._cut_last)

    def repair(self, leader: Leader) -> None:
        """Free what dead senders held, and what is missing from the queue at this look and the one before."""
        with leader.transaction() as session:
            freed = outbox.take_back(session, self._lease_s)
            overdue = outbox.overdue(session, self._age_s)
        if freed:
            _log.warning("a sender is gone; its deliveries are sent again", deliveries=len(freed))
        try:
            missing = self._missing(overdue) if overdue else set()
        except queues.AWAY:
            return
        lost, self._suspects = missing & self._suspects, missing - self._suspects
        if lost:
            with leader.transaction() as session:
                again = outbox.message_lost(session, list(lost))
            _log.warning("messages of deliveries were lost; they are sent again", deliveries=len(again))

    def forget(self, leader: Leader) -> None:
        """Delete deliveries past their retention."""
        with leader.transaction() as session:
            deliveries.purge(session)

    def _missing(self, sent: set[uuid.UUID]) -> set[uuid.UUID]:
        """By wire id: whatever else lies in the queue need not be one."""
        waiting = queues.waiting(self._celery, queues.DELIVERIES)
        return {delivery for delivery in sent if event_ids.to_wire(delivery) not in waiting}
