"""What the API's routes share: one object per process, built with the app and closed with it."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from pathlib import Path

from fastapi import Request
from sqlalchemy.orm import Session

from api.limits import Brake
from api.pulse import Pulse
from api.waiting import Hub
from registry import base_models
from registry.db import API_ROLE, INGEST_ROLE, Database
from registry.files import FileStore
from registry.keys import Caller
from registry.prompts import PromptFormat
from registry.secrets import SecretBox
from registry.settings import Settings
from registry.store import Store
from registry.wake import Waker
from registry.webhooks.targets import TargetRules


class Services:
    """Database (as the role that row-level security binds), adapter store, waker, prompt formats by base model."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = Database(settings.resolved_database_url, API_ROLE)
        self.store = Store(settings.store_dir)
        self.files = FileStore(settings.store_dir)
        self.waker = Waker(self.database)
        self.brake = Brake()
        self.hub = Hub(Database(settings.resolved_database_url, INGEST_ROLE, pool_size=1))
        probe = Database(settings.resolved_database_url, API_ROLE, pool_size=1)
        self.pulse = Pulse(probe, self.database.engine)
        self.secret_box = SecretBox(settings)
        self.webhook_rules = TargetRules.of(settings)
        self._formats: dict[str, tuple[tuple[str, object], PromptFormat]] = {}
        self._lock = threading.Lock()

    def transaction(self, caller: Caller) -> AbstractContextManager[Session]:
        """A transaction that sees the caller's rows only; committed when the block is left."""
        return self.database.transaction(caller.tenant_id)

    def prompt_format(self, session: Session, base: str) -> PromptFormat:
        """The base's prompt format. Its tokenizer is loaded once a process, at first need."""
        model = base_models.get(session, base)
        wanted = (model.path, model.template)
        with self._lock:
            known = self._formats.get(base)
            if known is None or known[0] != wanted:
                known = self._formats[base] = (wanted, PromptFormat(Path(model.path), model.template))
            return known[1]

    def close(self) -> None:
        """Send the last notices and drop the connections."""
        self.pulse.close()
        self.waker.close()
        self.hub.close()
        self.database.close()


async def services_of(request: Request) -> Services:  # one that is not async is run in a thread, for each request
    """The dependency that gives a route the process's services."""
    found: Services = request.app.state.services
    return found
