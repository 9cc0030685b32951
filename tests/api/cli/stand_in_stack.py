"""`lorry up` with stand-ins for every process but the two servers and the migrations."""

from __future__ import annotations

from pathlib import Path

from api.cli import app, processes, stack
from api.cli.processes import ProcessKind


def stand_in(kind: ProcessKind, *more: str) -> ProcessKind:
    script = str(Path(__file__).with_name("stand_in.py"))
    return ProcessKind(kind.name, (script, kind.name, *more), kind.stop_stage, kind.grace_s)


if __name__ == "__main__":
    for name in ("API", "DISPATCHER", "FLOWER", "IO_WORKER", "GPU_WORKER"):
        more = ("{deployment}",) if name == "GPU_WORKER" else ()
        setattr(stack, name, stand_in(getattr(processes, name), *more))
    app(["up"])
