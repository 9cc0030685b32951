"""The `lorry` command: the table of its commands, each in a module of its own that is imported when it is used."""

from __future__ import annotations

from typing import ClassVar

import typer

from api.cli.lazy import Entry, LazyGroup

HELP = "Many tenants' LoRA jobs in one GPU batch. Start with `lorry demo`, or `lorry up` for a stack of your own."


class _Commands(LazyGroup):
    entries: ClassVar[dict[str, Entry]] = {
        "demo": Entry("api.cli.demo", "Run the whole thing once: four tenants, four adapters, real jobs.", "demo"),
        "up": Entry("api.cli.up", "Run database, broker, API, dispatcher, workers and Flower on this machine.", "up"),
        "status": Entry("api.cli.status", "Show servers, workers, backlogs and processes.", "status"),
        "doctor": Entry("api.cli.doctor", "Check this machine and say what to mend.", "doctor"),
        "worker": Entry("api.cli.worker", "Run one GPU worker by hand.", "worker"),
        "tenants": Entry("api.cli.tenants", "Make and list tenants, and set their limits."),
        "usage": Entry("api.cli.usage", "Show what a tenant has used in a month.", "usage"),
        "keys": Entry("api.cli.keys", "Make, list and revoke API keys."),
        "bases": Entry("api.cli.bases", "Register and list base models."),
        "deployments": Entry("api.cli.deployments", "Add and list rank classes of a base."),
        "plan": Entry("api.cli.plan", "Show how many adapters and jobs a device carries.", "plan"),
        "adapters": Entry("api.cli.adapters", "Check, push, list and activate adapters."),
        "pause": Entry("api.cli.operations", "Pick no jobs of a deployment, tenant or adapter any more.", "pause"),
        "resume": Entry("api.cli.operations", "Pick its jobs again.", "resume"),
        "drain": Entry("api.cli.operations", "Let one GPU worker finish and exit.", "drain"),
        "verify-store": Entry("api.cli.operations", "Compare adapter files with their digests.", "verify_store"),
        "after-restore": Entry("api.cli.operations", "Make a restored database fit to start on.", "after_restore"),
        "submit": Entry("api.cli.submit", "Send documents as a batch, and take the results.", "submit"),
        "batches": Entry("api.cli.batches", "Your batches: list, show, cancel, results, rerun."),
        "webhooks": Entry("api.cli.webhooks", "Your webhook endpoints: list, add, test, rotate, deliveries."),
        "jobs": Entry("api.cli.jobs", "Look at jobs: states, times and timings, never texts."),
    }


# Rich tracebacks print local variables, which may hold a tenant's text or a key.
app = typer.Typer(cls=_Commands, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _root() -> None:
    """Keeps the application a group."""
