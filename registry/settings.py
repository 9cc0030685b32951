"""The settings of a Lorry process: read once from `LORRY_*` environment variables, checked at start, passed down.

This is the only module that reads the environment. `docs/settings.md` lists every field; a test compares the two.
"""

from __future__ import annotations

import ipaddress
import os
from functools import lru_cache
from pathlib import Path

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """One frozen object per process."""

    model_config = SettingsConfigDict(env_prefix="LORRY_", frozen=True, extra="ignore")

    data_dir: Path = Field(
        Path(".lorry"), description="Everything a one-machine stack keeps: databases, adapters, logs."
    )
    database_url: str | None = Field(None, description="PostgreSQL to use instead of the embedded one.")
    broker_url: str | None = Field(None, description="Redis or Valkey to use instead of the embedded one.")
    pg_bin: Path | None = Field(
        None, description="Folder with initdb and postgres; default: the embedded package, then PATH."
    )
    valkey_bin: Path | None = Field(
        None, description="valkey-server or redis-server; default: the embedded package, then PATH."
    )
    host: str = Field("127.0.0.1", description="Address that API and Flower listen on.")
    api_port: int = Field(8080, ge=1, le=65535, description="Port of the API.")
    flower_port: int = Field(5555, ge=1, le=65535, description="Port of Flower.")
    pg_port: int = Field(15432, ge=1, le=65535, description="Port of the embedded PostgreSQL.")
    valkey_port: int = Field(16379, ge=1, le=65535, description="Port of the embedded Valkey.")
    flower_user: str = Field("ops", description="User name for Flower.")
    flower_password: SecretStr | None = Field(
        None, description="Password for Flower; generated and printed when unset."
    )
    held: int | None = Field(
        None, ge=1, le=4096, description="Jobs a GPU worker holds (Celery concurrency); default by design."
    )
    adapter_max_wait_s: float = Field(
        5.0, gt=0, description="Longest that a held job waits for a slot before one is freed for it."
    )
    grouping_max_wait_s: float = Field(
        2.0, ge=0, description="Longest that a job may be overtaken for the sake of resident adapters."
    )
    beat_s: float = Field(5.0, gt=0, description="How often a worker writes its row.")
    lease_s: float = Field(30.0, gt=0, description="Silence after which a worker counts as dead.")
    drain_grace_s: float = Field(12.0, ge=0, description="How long live jobs may finish after SIGTERM.")
    wedged_after_s: float = Field(
        60.0, gt=0, description="How long a worker may take nothing from a queue that has jobs before it restarts."
    )
    worker_rss_limit_gib: float | None = Field(
        None, gt=0, description="Memory of a worker and its engine above which it drains and restarts; default: none."
    )
    quarantine_after_failures: int = Field(
        3, ge=1, description="Failed loads within an hour after which an adapter version is quarantined."
    )
    resend_after_s: float = Field(
        2.0, gt=0, description="Age at which a dispatched but unclaimed job may count as a lost message."
    )
    tick_ms: float = Field(
        30.0, ge=1, le=1000, description="Dispatcher's time from tick to tick while anything is queued or running."
    )
    engine: str = Field(
        "vllm", pattern="^(vllm|fake)$", description="`fake` answers without a model: policy and fault tests only."
    )
    fake_step_ms: float = Field(0.0, ge=0, description="What a token costs the `fake` engine.")
    kv_cache_gib: float = Field(1.0, gt=0, description="KV cache on CPU, in GiB.")
    max_body_bytes: int = Field(2 * 1024 * 1024, ge=1024, description="Largest JSON body of one request.")
    default_max_tokens: int = Field(
        256,
        ge=1,
        description="`max_tokens` of a job that states none; lowered to what the prompt leaves of the context.",
    )
    max_adapter_bytes: int = Field(2 * 1024**3, ge=1024, description="Largest adapter_model.safetensors accepted.")
    completion_wait_s: float = Field(
        60.0, gt=0, le=600, description="Longest that a completion waits for its job before it answers with an error."
    )
    max_wait_s: int = Field(30, ge=0, le=600, description="Longest `Prefer: wait=N` that is honoured for a job.")
    quota_queued_jobs: int = Field(
        200_000, ge=0, description="Jobs that a tenant may have waiting or running, unless it has a limit of its own."
    )
    quota_stored_bytes: int = Field(
        100 * 1024**3, ge=0, description="Bytes of files and adapters that a tenant may keep, unless it has its own."
    )
    quota_posts_per_minute: int = Field(
        6000, ge=1, description="POST requests a tenant may send within a minute, unless it has its own limit."
    )
    quota_tokens_per_day: int = Field(
        1_000_000_000, ge=0, description="Tokens a tenant may use on a day (UTC), unless it has its own limit."
    )
    secret_key: SecretStr | None = Field(
        None, min_length=32, description="Key that seals webhook secrets; default: generated below the data folder."
    )
    webhook_allow_http: bool = Field(False, description="Let webhooks go over plain http (port 80), unencrypted.")
    webhook_ports: str | None = Field(
        None,
        pattern=r"^\d{1,5}(,\d{1,5})*$",
        description="Ports that webhooks may use beside 443 and 8443, separated by commas.",
    )
    webhook_allow_networks: str | None = Field(
        None, description="Private networks that webhooks may reach, as CIDRs separated by commas."
    )
    max_file_bytes: int = Field(
        512 * 1024**2, ge=1024, description="Largest input of a batch: an uploaded file, or lines sent directly."
    )
    retention_days: int = Field(
        30, ge=8, le=3650, description="Days after which jobs, batches, their texts and uploaded files are deleted."
    )
    api_key: SecretStr | None = Field(None, description="For a tenant's commands (`lorry submit`): the API key.")
    base_url: str | None = Field(
        None,
        pattern=r"^https?://[^/\s]",
        description="For a tenant's commands: the server's address; default: this machine, at the API's port.",
    )
    metrics_host: str = Field("127.0.0.1", description="Address that each process shows its metrics on.")
    metrics_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port of each process's metrics; 0, or when it is taken: a free one; default: no metrics.",
    )
    device_memory_gib: float | None = Field(
        None, gt=0, description="Memory of a worker's device, for `auto` slots; default: what the device says."
    )
    failpoint: str | None = Field(
        None, description="For tests only: the place in the code where the process kills itself."
    )
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Log level of every process.")

    @property
    def resolved_database_url(self) -> str:
        """The server given by the operator, else the embedded one's address."""
        credentials = f"lorry{self._embedded_password('postgres')}"
        return self.database_url or f"postgresql+psycopg://{credentials}@127.0.0.1:{self.pg_port}/lorry"

    @property
    def resolved_broker_url(self) -> str:
        """The broker given by the operator, else the embedded one's address."""
        return self.broker_url or f"redis://{self._embedded_password('valkey')}@127.0.0.1:{self.valkey_port}/0"

    def _embedded_password(self, server: str) -> str:
        """`:password` of an embedded server, as `registry.embedded` wrote it at its first start; empty before that."""
        file = self.data_dir / "secrets" / server
        return f":{file.read_text('ascii').strip()}" if file.exists() else ""

    @field_validator("webhook_allow_networks")
    @classmethod
    def _are_networks(cls, value: str | None) -> str | None:
        for network in (value or "").split(","):
            ipaddress.ip_network(network.strip() or "::")
        return value

    @property
    def webhook_networks(self) -> tuple[str, ...]:
        """The allowed private networks, one text each."""
        return tuple(network.strip() for network in (self.webhook_allow_networks or "").split(",") if network.strip())

    @property
    def webhook_extra_ports(self) -> frozenset[int]:
        """The ports allowed beside 443 and 8443."""
        return frozenset(int(port) for port in (self.webhook_ports or "").split(",") if port)

    @property
    def spool_dir(self) -> Path:
        """Where uploads are received; nothing here outlives its request."""
        return self.data_dir.absolute() / "spool"

    @property
    def store_dir(self) -> Path:
        """Where adapter files live, by content digest; workers need to see the same folder."""
        return self.data_dir.absolute() / "store"


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The process's settings. Raises pydantic's ValidationError, which names the bad variable."""
    return Settings()


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment for a child process, with changes: the one place that hands it on."""
    return {**os.environ, **changes}
