"""What the tests of the way out share: a trap for connections that must not be made."""

from __future__ import annotations

import socket
import threading


class Trap:
    """A listener on every address of this machine that counts who connects and answers nobody."""

    def __init__(self) -> None:
        self.caught = 0
        self._sockets = [socket.create_server(("0.0.0.0", 0))]  # noqa: S104
        self.port = self._sockets[0].getsockname()[1]
        if socket.has_ipv6:
            self._sockets.append(socket.create_server(("::", self.port), family=socket.AF_INET6))
        for one in self._sockets:
            threading.Thread(target=self._accept, args=(one,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.caught += 1
            connection.close()

    def close(self) -> None:
        for one in self._sockets:
            one.shutdown(socket.SHUT_RDWR)
            one.close()
