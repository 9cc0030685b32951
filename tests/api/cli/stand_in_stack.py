"""`lorry up` with stand-ins for every process but the two servers and the migrations."""

from __future__ import annotations

from pathlib import Path

from api.cli import app, stack
from api.cli.processes import ProcessKind


def stand_in(kind: ProcessKind, *more: str) -> ProcessKind:
    script = str(Path(__file__).with_name("stand_in.py"))
    return ProcessKind(kind.name, (script, kind.name, *more), kind.stop_stage, kind.grace_s)


if __name__ == "__main__":
    stack.API = stand_in(stack.API)
    stack.DISPATCHER = stand_in(stack.DISPATCHER)
    stack.FLOWER = stand_in(stack.FLOWER)
    stack.IO_WORKER = stand_in(stack.IO_WORKER)
    stack.GPU_WORKER = stand_in(stack.GPU_WORKER, "{deployment}")
    app(["up"])
