"""A TCP relay in front of a server, so that a test can take the server away and bring it back in no time."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress


class Relay:
    """Listens on a port of its own from construction on. `cut` drops everything and refuses; `mend` listens again."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self._sockets: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.mend()

    def url(self, url: str) -> str:
        """The server's address by way of this relay."""
        return re.sub(rf":{self._target}(?=/)", f":{self.port}", url)

    def mend(self) -> None:
        """Let connections through."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Drop all connections, refuse new ones."""
        if self._listener is not None:
            _close(self._listener)
            self._listener = None
        for side in list(self._sockets):
            _close(side)
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._sockets |= {near, far}
                if self._listener is not listener:
                    _close(near)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    _close(source)
    _close(sink)


def _close(side: socket.socket) -> None:
    with suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()
