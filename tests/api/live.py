"""A real server in this process, for what the in-process client cannot show: sockets, chunks, outages."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

from api.server import make_server
from api.services import Services
from registry.settings import Settings


class LiveApi:
    """The server of `python -m api` on a free port of the loopback, on a thread of its own."""

    def __init__(self, settings: Settings) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._server = make_server(settings)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})

    @property
    def services(self) -> Services:
        """The process's shared objects."""
        found: Services = self._server.config.app.state.services
        return found

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> LiveApi:
        # The socket listens already: a request waits until the server takes it.
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join(timeout=10)
        assert not self._thread.is_alive()
