"""`lorry up`: the whole stack in the foreground until Ctrl-C. A first Ctrl-C drains, a second one does not wait."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Annotated

import typer

from api.cli.stack import Stack
from registry.settings import Settings, get_settings

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show the processes' own logs.")]


def up(quiet: Quiet = False) -> None:
    """Run database, broker, API, dispatcher, workers and Flower on this machine."""
    asyncio.run(serve(get_settings(), show_logs=not quiet))


async def serve(settings: Settings, *, show_logs: bool) -> None:
    """Start a stack, run it until SIGINT, SIGTERM or SIGHUP, and stop it. Raises what `Stack.start` raises."""
    begun_at_s = time.monotonic()
    stack = Stack(settings, say=_say, show_logs=show_logs)
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, _on_signal, stack, asked)
    starting = asyncio.create_task(stack.start())
    waiting = asyncio.create_task(asked.wait())
    try:
        await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
        if not asked.is_set():
            await starting
            _welcome(stack, time.monotonic() - begun_at_s)
            await waiting
    finally:
        for task in (starting, waiting):
            task.cancel()
        await asyncio.gather(starting, waiting, return_exceptions=True)
        stopped_from_s = time.monotonic()
        await stack.stop()
        _say(f"stopped after {time.monotonic() - stopped_from_s:.1f} s")


def _on_signal(stack: Stack, asked: asyncio.Event) -> None:
    if asked.is_set():
        _say("stopping at once")
        stack.stop_at_once()
    else:
        _say("stopping: running jobs finish first; once more to stop at once")
        asked.set()


def _welcome(stack: Stack, took_s: float) -> None:
    settings = stack.settings
    _say(f"up after {took_s:.1f} s; everything it keeps is in {settings.data_dir}")
    _say(f"API     {stack.api_url}  (described in {stack.api_url}/openapi.json)")
    _say(f"Flower  {stack.flower_url}  user {settings.flower_user}, password {_shown_password(stack)}")


def _shown_password(stack: Stack) -> str:
    """A generated password has to be told; the operator's own has not."""
    return "from LORRY_FLOWER_PASSWORD" if stack.settings.flower_password else stack.flower_password


def _say(line: str) -> None:
    typer.echo(f"{typer.style('lorry', bold=True):<18} | {line}")
