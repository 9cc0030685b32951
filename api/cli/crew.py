"""The child processes of one stack, by name: started with a log and an environment, stopped stage by stage.

Owns the set and its mirror in `run/up.json`. What to start, and when, is `stack.py`'s.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from api.cli.logtail import LogTail
from api.cli.probes import Probe
from api.cli.processes import CODE_DIR, ProcessKind
from api.cli.runner import Child
from api.cli.runstate import RunState, identity
from registry.embedded.launch import Launch
from registry.errors import Unavailable
from registry.settings import Settings, child_environment


class Crew:
    """Everything runs on one event loop in the main thread."""

    def __init__(
        self, settings: Settings, *, say: Callable[[str], None], tail: LogTail | None, about: dict[str, str]
    ) -> None:
        """`about` goes into `up.json` beside the processes."""
        self._settings, self._say, self._tail, self._about = settings, say, tail, about
        self.state = RunState(settings.data_dir)
        self._environment: dict[str, str] = {}
        self._members: dict[str, tuple[int, Child]] = {}

    def hand_on(self, flower_password: str) -> None:
        """Fix what the children get as environment: these settings, wherever they came from."""
        self._environment = child_environment(**as_variables(self._settings), LORRY_FLOWER_PASSWORD=flower_password)

    def start(self, kind: ProcessKind, ready: Probe | None = None, name: str | None = None, **values: str) -> Child:
        """Start one process of the table; `values` fill its command."""
        launch = Launch(name or kind.name, kind.argv(**values), grace_s=kind.grace_s)
        if self._tail:
            self._tail.add(launch.name, self._log(launch.name))
        return self.start_launch(launch, kind.stop_stage, ready)

    def start_launch(self, launch: Launch, stage: int, ready: Probe | None) -> Child:
        """Start anything and keep it running."""
        child = Child(
            launch,
            log=self._log(launch.name),
            environment=self._environment,
            folder=CODE_DIR,
            ready=ready,
            say=self._say,
            changed=self._write_state,
        )
        self._members[launch.name] = (stage, child)
        child.begin()
        return child

    async def run(self, kind: ProcessKind) -> None:
        """Run a one-shot process to its end. Raises Unavailable with its last lines when it fails."""
        log = self._log(kind.name)
        options = Launch(kind.name, ()).popen_options()
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *kind.argv(), stdout=output, stderr=output, cwd=CODE_DIR, env=self._environment, **options
            )
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        if code:
            words = "\n".join(log.read_text("utf-8", "replace").splitlines()[-12:])
            raise Unavailable(f"{kind.name} failed ({log}):\n{words}")

    def named(self, prefix: str) -> dict[str, Child]:
        """The members whose names begin with `prefix`."""
        return {name: child for name, (_, child) in self._members.items() if name.startswith(prefix)}

    async def dismiss(self, name: str) -> None:
        """Stop one and forget it; safe when two ask for it."""
        if name in self._members:
            await self._members[name][1].stop()
            self._members.pop(name, None)
        self._write_state()

    async def stop(self) -> None:
        """Stage after stage; within a stage together."""
        for stage in sorted({stage for stage, _ in self._members.values()}):
            together = [child for at, child in self._members.values() if at == stage]
            await asyncio.gather(*(child.stop() for child in together))

    def hurry(self) -> None:
        """End all now."""
        for _, child in self._members.values():
            child.hurry()

    def _log(self, name: str) -> Path:
        return self._settings.data_dir / "logs" / f"{name}.log"

    def _write_state(self) -> None:
        processes: dict[str, Any] = {
            name: {**identity(child.pid), "state": child.state, "restarts": child.deaths}
            for name, (_, child) in self._members.items()
        }
        self.state.write({"runner": identity(os.getpid()), **self._about, "processes": processes})


def as_variables(settings: Settings) -> dict[str, str]:
    """The `LORRY_*` variables that give a child process these settings; unset ones keep their default there too."""
    variables = {}
    for name in settings.model_fields_set:
        value = getattr(settings, name)
        if isinstance(value, Path):
            # Children run in another folder; a file that PATH or the data directory gives is absolute already.
            value = value.absolute()
        if value is not None:
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            variables[f"LORRY_{name.upper()}"] = str(plain)
    return variables
