"""A tenant at the command line: a key, the address of a live server, and neither database nor broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from registry.settings import Settings, get_settings
from tests.api.cli.called import Answer, call
from tests.api.live import LiveApi


class Tenant:
    """`tenant("batches", "list")`. `http` asks the same server with the same key, beside the command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, port: int, key: str) -> None:
        self._monkeypatch = monkeypatch
        self.key = key
        self.http = httpx2.Client(
            base_url=f"http://127.0.0.1:{port}/v1", headers={"authorization": f"Bearer {key}"}, timeout=30
        )
        monkeypatch.setenv("LORRY_DATABASE_URL", "postgresql+psycopg://lorry@127.0.0.1:9/lorry")
        monkeypatch.setenv("LORRY_BROKER_URL", "redis://127.0.0.1:9/0")
        monkeypatch.setenv("LORRY_API_KEY", key)
        self.by_way_of(port)

    def by_way_of(self, port: int) -> None:
        """Let commands go to this port."""
        self._monkeypatch.setenv("LORRY_BASE_URL", f"http://127.0.0.1:{port}/v1")
        get_settings.cache_clear()

    def __call__(self, *arguments: Any, stdin: bytes | None = None) -> Answer:
        return call(*arguments, stdin=stdin)

    def results(self, batch_id: str) -> bytes:
        """What the API itself gives."""
        return self.http.get(f"/batches/{batch_id}/results").content


@contextmanager
def live_tenant(monkeypatch: pytest.MonkeyPatch, settings: Settings, key: Callable[[], str]) -> Iterator[Tenant]:
    """A tenant of a server that runs until the end."""
    # The server runs in this process: its log would be in what the command printed.
    with capture_logs(), LiveApi(settings) as live:
        made = Tenant(monkeypatch, live.port, key())
        yield made
        made.http.close()
    get_settings.cache_clear()
