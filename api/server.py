"""The HTTP server around the app: limits on what arrives before a route sees it, and an end that drops no answer."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn

from api.app import create_app
from registry.settings import Settings

_MAX_HEAD_BYTES: Final = 16 * 1024
_GRACE_S: Final = 10


class _Server(uvicorn.Server):  # type: ignore[misc]
    """One that does not wait for those who wait."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer clients that wait for jobs, then end."""
        self.config.app.state.services.hub.stop()
        await super().shutdown(sockets)


def make_server(settings: Settings) -> uvicorn.Server:
    """A server that on SIGTERM takes no new request and finishes those it has, for up to 10 s."""
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.api_port,
        http="h11",  # the faster parser keeps request heads of any size in memory
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        ws="none",
        log_config=None,
        access_log=False,  # our own line has ids and patterns only; theirs has addresses as sent
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return _Server(config)
