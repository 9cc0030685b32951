"""The part of a statement that counts the jobs it has ended: where the count is written, nobody can forget it.

Settling has a tally of its own, with tokens and times (`registry/transitions/settle.py`).
"""

from __future__ import annotations

from typing import Literal


def tallied(count: Literal["failed", "cancelled", "expired"]) -> str:
    """A CTE over `ended (tenant_id, adapter_key, batch_id, parent_id)`: one tally a tenant, adapter version and batch.

    A part of a long document is not counted: its job is.
    """
    return f"""
    INSERT INTO tallies (tenant_id, day, adapter_key, batch_id, {count})
    SELECT tenant_id, (clock_timestamp() AT TIME ZONE 'UTC')::date, adapter_key, batch_id, count(*)
    FROM ended WHERE parent_id IS NULL GROUP BY tenant_id, adapter_key, batch_id
    """  # noqa: S608
