"""What tenants have used, by day and adapter version: the folded days together with the tallies not folded yet.

Both are read in one statement, and folding moves a tally in one transaction, so that every job is in it exactly once.
"""

from __future__ import annotations

import calendar
import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.errors import InvalidField

_USAGE = text("""
SELECT u.day, a.name AS adapter, a.version,
       sum(succeeded)::bigint AS succeeded, sum(failed)::bigint AS failed,
       sum(cancelled)::bigint AS cancelled, sum(expired)::bigint AS expired,
       sum(prompt_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens,
       round(sum(swap_ms)::numeric, 3)::float8 AS swap_ms, round(sum(engine_ms)::numeric, 3)::float8 AS engine_ms
FROM (
    SELECT day, adapter_key, succeeded, failed, cancelled, expired, prompt_tokens, output_tokens, swap_ms, engine_ms
    FROM usage_days WHERE tenant_id = :tenant AND day BETWEEN :first AND :last
    UNION ALL
    SELECT day, adapter_key, succeeded, failed, cancelled, expired, prompt_tokens, output_tokens, swap_ms, engine_ms
    FROM tallies WHERE tenant_id = :tenant AND day BETWEEN :first AND :last
) AS u LEFT JOIN tenant_adapters a ON a.tenant_id = :tenant AND a.adapter_id = u.adapter_key
GROUP BY u.day, a.name, a.version
ORDER BY u.day, a.name NULLS FIRST, a.version
""")


@dataclass(frozen=True, slots=True)
class Used:
    """One day (UTC) of one adapter version; `adapter` None: base models, without an adapter.

    `swap_ms`: the swaps' own cost, split among the jobs that waited for them. `engine_ms`: time in the engine, split
    among those that were in it together.
    """

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


def between(session: Session, tenant_id: str, first: date, last: date) -> Sequence[Used]:
    """The tenant's use from `first` to `last`, both included, by day and adapter version."""
    rows = session.execute(_USAGE, {"tenant": tenant_id, "first": first, "last": last}).mappings()
    return [Used(**{field.name: row[field.name] for field in fields(Used)}) for row in rows]


def days_of(month: str) -> tuple[date, date]:
    """First and last day of a `YYYY-MM`. Raises InvalidField."""
    try:
        first = date.fromisoformat(f"{month}-01")
    except ValueError:
        raise InvalidField("A month is written YYYY-MM.", param="month") from None
    return first, first.replace(day=calendar.monthrange(first.year, first.month)[1])


def as_csv(rows: Sequence[Used]) -> str:
    """A table with a head, one row a day and adapter version. Names are slugs: no cell can be a formula."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Used)], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return out.getvalue()
