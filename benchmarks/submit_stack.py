"""What the submit benchmark runs against: PostgreSQL as `lorry up` starts it, the API as a process of its own."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psycopg

from benchmarks.batch_lines import MODEL
from registry import base_models, deployments, keys, migrations, tenants
from registry.db import INGEST_ROLE, SYSTEM_ROLE, Database
from registry.deployments import EngineSettings
from registry.embedded import start_servers
from registry.embedded.ports import free_port
from registry.settings import Settings, child_environment
from tests.tiny_base import make_tiny_base

TENANT: Final = "acme"
_JOB_COLUMNS: Final = "id, tenant_id, deployment, adapter_id, model, priority, deadline, batch_id, line_no, custom_id"
_INPUT_COLUMNS: Final = "day, job_id, tenant_id, body"
_BLOCK_BYTES: Final = 64 * 1024

Encoded = tuple[str, list[bytes], list[bytes]]
"""A batch's id, and the blocks of its rows in PostgreSQL's binary form: jobs, then inputs."""


class Stack:
    """One database, one API, one tenant with the base `Tiny`. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._settings = Settings(data_dir=folder, pg_port=free_port(), valkey_port=free_port(), api_port=free_port())
        self._servers = start_servers(self._settings)
        try:
            self._url = self._settings.resolved_database_url
            migrations.upgrade(self._url)
            self._key = self._populate(folder)
            self._plain = psycopg.connect(self._url.replace("+psycopg", ""), autocommit=True)
            self._api = self._start_api(folder)
        except BaseException:
            self._servers.stop()
            raise

    def submit(self, body: bytes, query: str = "") -> dict[str, Any]:
        """POST the lines; the batch once it is committed."""
        return self._post(f"/v1/batches{query}", body, "application/x-ndjson")

    def submit_file(self, upload: bytes) -> dict[str, Any]:
        """Upload the lines as a file and make a batch of it, as OpenAI's client does."""
        fields = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
        form = b"".join((fields, head, upload, b"\r\n--b--\r\n"))
        file = self._post("/v1/files", form, "multipart/form-data; boundary=b")
        wanted = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        return self._post("/v1/batches", json.dumps(wanted).encode(), "application/json")

    def encoded_rows(self) -> Encoded:
        """The rows of the one batch there is, as COPY takes them."""
        row = self._plain.execute("SELECT id::text FROM batches").fetchone()
        assert row is not None
        jobs = f"SELECT {_JOB_COLUMNS} FROM jobs ORDER BY seq"  # noqa: S608
        inputs = "SELECT day, job_id, i.tenant_id, body FROM job_inputs i JOIN jobs ON jobs.id = job_id ORDER BY seq"
        return str(row[0]), self._copied_out(jobs), self._copied_out(inputs)

    def copy(self, encoded: Encoded) -> None:
        """The same rows by COPY alone, in one transaction."""
        batch_id, jobs, inputs = encoded
        with psycopg.connect(self._url.replace("+psycopg", ""), options=f"-c role={INGEST_ROLE}") as connection:
            connection.execute(
                "INSERT INTO batches (id, tenant_id, source, endpoint, status, completion_window)"
                " VALUES (%s, %s, 'ndjson', '/v1/jobs', 'in_progress', '24h')",
                (batch_id, TENANT),
            )
            for target, blocks in ((f"jobs ({_JOB_COLUMNS})", jobs), (f"job_inputs ({_INPUT_COLUMNS})", inputs)):
                with connection.cursor().copy(f"COPY {target} FROM STDIN (FORMAT BINARY)") as copy:
                    for block in blocks:
                        copy.write(block)

    def stored_jobs(self) -> int:
        """Jobs in the database."""
        row = self._plain.execute("SELECT count(*) FROM jobs").fetchone()
        assert row is not None
        return int(row[0])

    def stored_bad_lines(self) -> set[tuple[int, str]]:
        """The refused lines in the database, with their codes."""
        return {(row[0], row[1]) for row in self._plain.execute("SELECT line_no, code FROM batch_bad_lines")}

    def clear(self) -> None:
        """Empty the tables and write everything down, so that no arm pays for the one before it."""
        self._plain.execute("TRUNCATE jobs, job_inputs, batches, files, jobs_taken CASCADE")
        self._plain.execute("CHECKPOINT")

    def api_rss_mib(self, *, highest: bool = False) -> float:
        """The API's resident memory now, or at its highest since `forget_highest_rss`."""
        wanted = "VmHWM" if highest else "VmRSS"
        lines = Path(f"/proc/{self._api.pid}/status").read_text("utf-8").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{wanted}:"))

    def forget_highest_rss(self) -> None:
        """Let the highest begin anew, at what it is now."""
        Path(f"/proc/{self._api.pid}/clear_refs").write_text("5", "utf-8")

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._api.terminate()
        self._api.wait(15)
        self._plain.close()
        self._servers.stop()

    def _populate(self, folder: Path) -> str:
        base = make_tiny_base(folder / "tiny")
        engine = EngineSettings(dtype="float32", max_model_len=8192, max_num_seqs=8, max_loras=2, max_lora_rank=8)
        database = Database(self._url, SYSTEM_ROLE)
        try:
            with database.transaction() as session:
                tenants.create(session, TENANT, "Acme")
                template = base_models.DEFAULT_TEMPLATE
                base_models.add(session, MODEL, base, revision=None, aliases=(), template=template)
                deployments.add(session, MODEL, MODEL, engine, is_default=True, kv_cache_gib=0.1)
                return keys.create(session, TENANT, "benchmark")[1]
        finally:
            database.close()

    def _start_api(self, folder: Path) -> subprocess.Popen[bytes]:
        changes = {
            "LORRY_DATA_DIR": str(folder),
            "LORRY_API_PORT": str(self._settings.api_port),
            "LORRY_PG_PORT": str(self._settings.pg_port),
            "LORRY_VALKEY_PORT": str(self._settings.valkey_port),
        }
        with (folder / "api.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "api"], env=child_environment(**changes), stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if time.monotonic() > deadline or process.poll() is not None:
                process.kill()
                raise RuntimeError((folder / "api.log").read_text("utf-8"))
            time.sleep(0.1)
        return process

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._settings.api_port, timeout=5)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _post(self, path: str, body: bytes, media_type: str) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._settings.api_port, timeout=300)
        try:
            headers = {"authorization": f"Bearer {self._key}", "content-type": media_type}
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status == 200, text[:2000]
            found: dict[str, Any] = json.loads(text)
            return found
        finally:
            connection.close()

    def _copied_out(self, query: str) -> list[bytes]:
        with self._plain.cursor().copy(f"COPY ({query}) TO STDOUT (FORMAT BINARY)") as copy:
            whole = b"".join(bytes(block) for block in copy)
        return [whole[at : at + _BLOCK_BYTES] for at in range(0, len(whole), _BLOCK_BYTES)]
