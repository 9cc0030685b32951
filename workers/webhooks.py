"""Sending deliveries: claim, build, post, settle. Any number of threads share one `Sender`.

A sender that dies between the post and the settling leaves the delivery `sending`; the dispatcher frees it after a
lease, and it is sent again under the same id: at least once.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from registry import failpoints, metrics
from registry.db import Database
from registry.errors import ConfigurationError, Unavailable
from registry.logs import get_logger
from registry.secrets import SecretBox
from registry.webhooks import endpoints, event_ids, outbox, payloads
from registry.webhooks.outbox import Claimed
from registry.webhooks.schedule import Answer, Verdict, judge
from workers.egress import Egress

IN_A_ROW: Final = 20
"""Deliveries of one lane that a task sends before the dispatcher decides again whose turn it is."""
RETRY_S: Final = (0.1, 0.5, 2.0, 5.0)
"""Waits of a settling that finds the registry away; after them the lease frees the delivery, to be sent again."""

_log = get_logger("webhooks")
_DISABLED: Final = Verdict("exhausted")


class Sender:
    """One per io process."""

    def __init__(self, database: Database, box: SecretBox, egress: Egress) -> None:
        self._database = database
        self._box = box
        self._egress = egress
        self._draining = threading.Event()

    def deliver(self, delivery_id: uuid.UUID) -> None:
        """Send a delivery, then others of its lane that are due. Returns when all are settled; never raises."""
        try:
            with self._database.transaction() as session:
                claimed = outbox.claim(session, delivery_id)
            for turn in range(IN_A_ROW):
                if claimed is None:
                    return
                claimed = self._send(claimed, go_on=turn + 1 < IN_A_ROW and not self._draining.is_set())
        except (Unavailable, SQLAlchemyError) as error:
            _log.warning("the registry is away; deliveries wait", error=type(error).__name__)

    def drain(self) -> None:
        """Begin nothing of one's own accord any more."""
        self._draining.set()

    def close(self) -> None:
        """After the last delivery."""
        self._egress.close()

    def _send(self, claimed: Claimed, *, go_on: bool) -> Claimed | None:
        """One attempt. The lane's next delivery, if there is one and it is wanted."""
        try:
            with self._database.transaction() as session:
                message = payloads.build(session, self._box, claimed)
        except ConfigurationError as error:
            _log.error("a delivery cannot be signed", delivery=event_ids.to_wire(claimed.id), reason=error.message)
            return self._settle(claimed, Answer(None, "secret_unreadable", 0.0), None, go_on=go_on)
        if message is None:
            return self._settle(claimed, Answer(None, "endpoint_disabled", 0.0), _DISABLED, go_on=False)
        answer = self._egress.post(message.url, message.headers, message.body)
        failpoints.reach("after_send_before_mark")
        return self._settle(claimed, answer, None, go_on=go_on)

    def _settle(self, claimed: Claimed, answer: Answer, verdict: Verdict | None, *, go_on: bool) -> Claimed | None:
        decided = verdict or judge(answer, claimed.failures, random.uniform(-1, 1))  # noqa: S311
        _log.info(
            "delivery",
            delivery=event_ids.to_wire(claimed.id),
            type=claimed.type,
            attempt=claimed.attempts,
            state=decided.state,
            code=answer.code,
            error=answer.reason,
            ms=round(answer.latency_ms, 1),
        )
        metrics.DELIVERIES.labels(decided.state).inc()
        for wait_s in (*RETRY_S, None):
            try:
                with self._database.transaction() as session:
                    return self._written(session, claimed, answer, decided, go_on=go_on)
            except Unavailable:
                if wait_s is None:
                    raise
                time.sleep(wait_s)
        return None

    def _written(
        self, session: Session, claimed: Claimed, answer: Answer, verdict: Verdict, *, go_on: bool
    ) -> Claimed | None:
        kind = outbox.settle(session, claimed, answer, verdict)
        # A host that is named in a job's webhook_url speaks for that URL only, not for all of the tenant's.
        if verdict.gone and kind == "registered":
            endpoints.disable(session, claimed.tenant_id, claimed.endpoint_id, "gone")
        elif kind is not None and not answer.accepted and outbox.failed_for_days(session, claimed.endpoint_id):
            endpoints.disable(session, claimed.tenant_id, claimed.endpoint_id, "failing")
        return outbox.claim_next(session, claimed.lane) if go_on else None


_current: Sender | None = None


def install(sender: Sender) -> None:
    """Make this the process's sender, for its tasks."""
    global _current
    _current = sender


def current() -> Sender:
    """The process's sender."""
    if _current is None:
        raise ConfigurationError("This process sends no webhooks: start it with `python -m workers.main io`.")
    return _current
