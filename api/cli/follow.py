"""Waiting for a batch and taking its results meanwhile. The batch itself needs nobody who waits."""

from __future__ import annotations

import time
from typing import Any, Final

import typer

from api.cli.client import Api
from api.cli.downloads import Download
from api.cli.exits import ConnectionLost, Exit, Interrupted
from api.cli.meter import Meter, line

_POLL_S: Final = 1.0
ENDS: Final = frozenset({"completed", "failed", "expired", "cancelled"})


def follow(api: Api, batch_id: str, target: str | None) -> Exit:
    """Wait for the end, results into `target`; how it ended. Raises Refused, ConnectionLost and Interrupted, the last
    two with the command that goes on."""
    download = Download(batch_id, target) if target else None
    try:
        batch = _watch(api, batch_id, download)
        if download is not None:
            download.finish()
    except KeyboardInterrupt:
        raise Interrupted(f"The batch goes on. {going_on(batch_id, target)}") from None
    except ConnectionLost as lost:
        raise ConnectionLost(f"{lost.message} The batch goes on. {going_on(batch_id, target)}") from lost
    finally:
        if download is not None:
            download.close()
    return ending(batch, download)


def take(api: Api, batch_id: str, target: str) -> str:
    """Take what has ended so far, without waiting; the batch's status before that. Raises Refused, ConnectionLost."""
    download = Download(batch_id, target)
    try:
        status = download.fetch(api)
        if status in ENDS:
            download.finish()
        elif target != "-":
            typer.echo(f"{batch_id} is {status}: {download.reached.lines} lines so far, in {target}.part.", err=True)
            typer.echo(going_on(batch_id, target), err=True)
    except ConnectionLost as lost:
        raise ConnectionLost(f"{lost.message} {going_on(batch_id, target)}") from lost
    finally:
        download.close()
    return status


def going_on(batch_id: str, target: str | None) -> str:
    """How to come back to a batch."""
    return f"Go on with: lorry submit --batch {batch_id} --wait{f' --out {target}' if target else ''}"


def ending(batch: dict[str, Any], download: Download | None) -> Exit:
    """Say how a batch ended, and what that means for the exit status."""
    typer.echo(
        f"{batch['id']} {batch['status']}: {line(batch, download.reached.swaps if download else None)}.", err=True
    )
    counts = batch["request_counts"]
    if batch["status"] == "completed" and counts["failed"] == 0:
        return Exit.ALL_SUCCEEDED
    if counts["failed"]:
        typer.echo(f"What failed can run again: lorry batches rerun {batch['id']}", err=True)
    return Exit.SOME_FAILED


def _watch(api: Api, batch_id: str, download: Download | None) -> dict[str, Any]:
    """The batch at its end, all its results taken."""
    with Meter() as meter:
        while True:
            batch = api.get(f"batches/{batch_id}")
            status = download.fetch(api) if download else str(batch["status"])
            # Results that were read after the batch had ended are all of them.
            is_whole = status in ENDS
            if is_whole and download is not None:
                batch = api.get(f"batches/{batch_id}")
            meter.show(batch, download.reached.swaps if download else None)
            if is_whole:
                return batch
            time.sleep(_POLL_S)
