"""`lorry worker`: one GPU worker by hand, its device pinned before anything is imported."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from api.cli.connection import registry_session
from api.cli.processes import CODE_DIR, GPU_WORKER
from registry import deployments
from registry.settings import child_environment, get_settings


def worker(
    deployment: Annotated[str, typer.Option(help="The deployment to serve.")],
    device: Annotated[
        str | None, typer.Option(help="Device index, or several with commas; by default the deployment's.")
    ] = None,
) -> None:
    """Becomes the worker: signals, output and exit status are the worker's own."""
    if device is None:
        with registry_session() as session:
            device = deployments.get(session, deployment).device
    command = GPU_WORKER.argv(deployment=deployment, device=device)
    environment = child_environment(
        # CUDA reads it when it is first loaded; the worker's imports may do that.
        CUDA_VISIBLE_DEVICES=device,
        # The worker runs in the code's folder, where a relative path would mean another place.
        LORRY_DATA_DIR=str(get_settings().data_dir.absolute()),
    )
    os.chdir(CODE_DIR)
    os.execvpe(command[0], command, environment)  # noqa: S606
