"""`lorry demo`: hands over to the demo, which is part of the repository and not of the installed package."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from registry.errors import ConfigurationError


def demo(
    report: Annotated[Path | None, typer.Option(help="Write the figures to this file as JSON.")] = None,
    jobs: Annotated[int, typer.Option(min=4, max=4000, help="Tickets to submit, shared by the four tenants.")] = 160,
    onboard_only: Annotated[
        bool, typer.Option("--onboard-only", help="Only load the tenants into the running stack; print their keys.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack running until Ctrl-C.")] = False,
) -> None:
    """Run the whole thing once: four tenants, four adapters, real jobs."""
    if find_spec("demo") is None or find_spec("demo.run") is None:
        raise ConfigurationError(
            "The demo's adapters and tickets come with the repository only: clone it and run `make demo` there."
        )
    from demo.run import Plan, run

    if not run(Plan(jobs=jobs, report=report, onboard_only=onboard_only, keep=keep)):
        raise typer.Exit(1)
