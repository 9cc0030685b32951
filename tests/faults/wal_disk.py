"""PostgreSQL's write-ahead log on a small disk of its own, which can be filled and freed."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress

import psycopg

from tests.faults.cluster import Cluster

SPARE_MIB = 64
"""Beside what is in it at the start."""


class WalDisk:
    """`with WalDisk(cluster) as disk:` restarts PostgreSQL on the small disk, afterwards back on its own. Root only."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._wal = cluster.settings.data_dir / "postgres" / "pg_wal"
        self._aside = self._wal.with_name("pg_wal_aside")
        self._ballast = self._wal / "ballast"

    def __enter__(self) -> WalDisk:
        self._cluster.postgres.stop()
        owner = self._wal.stat()
        shutil.move(self._wal, self._aside)
        self._wal.mkdir()
        used_mib = sum(file.stat().st_size for file in self._aside.rglob("*") if file.is_file()) >> 20
        size = f"size={used_mib + SPARE_MIB}m,mode=700,uid={owner.st_uid},gid={owner.st_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self._wal)], check=True)
        subprocess.run(["cp", "-a", f"{self._aside}/.", str(self._wal)], check=True)
        self._cluster.postgres.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.free()
        self._cluster.postgres.stop()
        shutil.rmtree(self._aside)
        subprocess.run(["cp", "-a", f"{self._wal}/.", str(self._aside)], check=True)
        subprocess.run(["umount", str(self._wal)], check=True)
        self._wal.rmdir()
        shutil.move(self._aside, self._wal)
        self._cluster.postgres.start()

    def fill(self) -> None:
        """Not a byte is left for the next segment."""
        with self._ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                os.write(ballast.fileno(), bytes(1 << 20))

    def use_up(self) -> None:
        """Write until PostgreSQL ends for want of a segment. It starts again by itself, and may be ended again."""
        with suppress(psycopg.OperationalError), self._cluster.superuser() as connection:
            while True:
                connection.execute("SELECT pg_logical_emit_message(false, 'ballast', 'x')")
                connection.execute("SELECT pg_switch_wal()")

    def free(self) -> None:
        """Somebody makes room."""
        self._ballast.unlink(missing_ok=True)
