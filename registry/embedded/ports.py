"""Loopback ports: find a free one, or say plainly that a wanted one is taken."""

from __future__ import annotations

import socket

from registry.errors import ConfigurationError


def free_port() -> int:
    """A port that nobody listens on at this moment, for tests and demos that run beside another stack."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def require_free(port: int, setting: str, host: str = "127.0.0.1") -> None:
    """Raises ConfigurationError that names the setting when `host:port` cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # A port that an earlier stack has just left is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as taken:
            raise ConfigurationError(
                f"Port {port} on {host} cannot be used ({taken.strerror}). Is a stack running already? "
                f"Stop what listens there, or choose another port with {setting}.",
                param=setting,
            ) from taken
