"""`lorry submit`: documents in, a batch, its results out. Speaks HTTP only."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from api.cli import follow, submitting
from api.cli.client import new_key, tenant_api
from api.cli.documents import Reading, items
from api.cli.downloads import check_target
from api.cli.encodings import codec
from api.cli.exits import Exit
from api.cli.submitting import Wishes

Source = Annotated[
    str | None, typer.Argument(metavar="SOURCE", help="A .jsonl, .csv, .tsv or .txt file, a folder of .txt, or -.")
]
Model = Annotated[str | None, typer.Option(help="Adapter, adapter@version or base; for lines that name none.")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="For lines that state none.")]
Column = Annotated[str | None, typer.Option(help="CSV: the documents' column; `document` by default.")]
IdColumn = Annotated[str | None, typer.Option(help="CSV: the ids' column; row numbers by default.")]
Kind = Annotated[
    Literal["jsonl", "csv", "tsv", "txt"] | None, typer.Option("--format", help="Of the input, if no suffix tells it.")
]
Encoding = Annotated[str | None, typer.Option(help="Of the input: cp949, utf-16, ...; UTF-8 by default.")]
Window = Annotated[str, typer.Option(help="1h to 168h, or 1d to 7d.")]
OnBadLine = Annotated[Literal["fail", "skip"], typer.Option(help="Refuse everything, or run the other lines.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="Of an earlier try, so that it is not made twice.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would happen: bad lines, tokens, time, quota.")]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until the batch has ended; --out does so too.")]
Out = Annotated[str | None, typer.Option(help="Results in input order: a .jsonl, .csv or .tsv file, or - .")]
Batch = Annotated[str | None, typer.Option(metavar="ID", help="Go on with a batch that was submitted before.")]
RetryFor = Annotated[float, typer.Option(min=0, help="Seconds to bear a server that does not answer.")]


def submit(
    source: Source = None,
    model: Model = None,
    max_tokens: MaxTokens = None,
    column: Column = None,
    id_column: IdColumn = None,
    kind: Kind = None,
    encoding: Encoding = None,
    completion_window: Window = "24h",
    on_bad_line: OnBadLine = "fail",
    idempotency_key: Key = None,
    dry_run: DryRun = False,
    wait: Wait = False,
    out: Out = None,
    batch: Batch = None,
    retry_for: RetryFor = 300.0,
) -> None:
    """Send documents as one batch. Prints its id; with --wait shows how far it is, with --out takes the results."""
    if (source is None) == (batch is None):
        raise typer.BadParameter("give documents (a file, a folder, or -), or --batch ID of a batch made before")
    if out is not None:
        check_target(out, batch)
    codec(encoding)
    reading = Reading(model, max_tokens, column, id_column, kind, encoding)
    wishes = Wishes(completion_window, on_bad_line, idempotency_key or new_key())
    with tenant_api(retry_for) as api:
        if source is not None and dry_run:
            raise typer.Exit(submitting.rehearse(api, items(source, reading), wishes))
        batch_id = batch or submitting.submit(api, items(source or "", reading), wishes)
        if out != "-":
            typer.echo(batch_id)
        if batch is None and not wait and out is None:
            typer.echo(follow.going_on(batch_id, None), err=True)
            raise typer.Exit(Exit.ALL_SUCCEEDED)
        raise typer.Exit(follow.follow(api, batch_id, out))
