"""/v1/usage: what the caller has used, and how near its limits it is."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from api.deps import Caller, Session, Shared
from registry import quotas, usage
from registry.errors import InvalidField

router = APIRouter(tags=["usage"])

_MAX_DAYS: Final = 400
_CSV: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}
Month = Annotated[str, Query(pattern=r"^\d{4}-(0[1-9]|1[0-2])$", description="YYYY-MM")]


class UsageRow(BaseModel):
    """One day (UTC) of one adapter version; without an adapter it is the base models'. Each job counts once, on the
    day it ended."""

    day: date
    adapter: str | None
    version: int | None
    succeeded: int
    failed: int
    cancelled: int
    expired: int
    input_tokens: int
    output_tokens: int
    swap_ms: float
    engine_ms: float


class Level(BaseModel):
    """How much of a limit is used."""

    used: int
    limit: int


class Levels(BaseModel):
    """What counts against your limits now. Jobs count until a second after their end."""

    queued_jobs: Level
    stored_bytes: Level
    tokens_per_day: Level


class UsageReport(BaseModel):
    """From `first` to `last`, both included."""

    object: Literal["usage"] = "usage"
    first: date
    last: date
    data: list[UsageRow]
    limits: Levels


@router.get("/usage")
def get_usage(
    services: Shared,
    session: Session,
    caller: Caller,
    first: Annotated[date | None, Query(description="First day (UTC); default: 30 days back.")] = None,
    last: Annotated[date | None, Query(description="Last day (UTC); default: today.")] = None,
) -> UsageReport:
    """Jobs, tokens, swap and engine time by day and adapter version, and what is left of your limits."""
    until = last or datetime.now(UTC).date()
    since = first or until - timedelta(days=min(30, until.toordinal() - 1))
    if not 0 <= (until - since).days <= _MAX_DAYS:
        raise InvalidField(f"Ask for 1 to {_MAX_DAYS} days, `first` before `last`.", param="first")
    rows = [UsageRow(**asdict(row)) for row in usage.between(session, caller.tenant_id, since, until)]
    limits = quotas.limits_of(session, caller.tenant_id, services.settings)
    used = quotas.used(session, caller.tenant_id)
    levels = {
        name: Level(used=max(0, getattr(used, name)), limit=getattr(limits, name)) for name in Levels.model_fields
    }
    return UsageReport(first=since, last=until, data=rows, limits=Levels(**levels))


@router.get("/usage.csv", response_class=Response, responses=_CSV)
def get_usage_csv(session: Session, caller: Caller, month: Month) -> Response:
    """The same for a month, as a table."""
    table = usage.as_csv(usage.between(session, caller.tenant_id, *usage.days_of(month)))
    headers = {"content-disposition": f'attachment; filename="usage-{month}.csv"'}
    return Response(table, headers=headers, media_type="text/csv; charset=utf-8")
