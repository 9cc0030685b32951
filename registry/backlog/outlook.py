"""What the backlog will need: for a worker that must choose whose slot or host copy to give up."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import text
from sqlalchemy.orm import Session

_NEXT_USES = text("""
SELECT a.adapter_id, row_number() OVER (ORDER BY coalesce(c.served, 0), head.seq) AS place
FROM tenant_adapters a CROSS JOIN LATERAL (
    SELECT j.seq FROM jobs j WHERE j.deployment = :deployment AND j.state = 'queued' AND j.tenant_id = a.tenant_id
      AND j.adapter_key = a.adapter_id ORDER BY j.priority, j.seq LIMIT 1) AS head
LEFT JOIN service_counters c ON c.deployment = :deployment AND c.tenant_id = a.tenant_id
WHERE a.adapter_id = ANY(:adapters)
""")


def next_uses(session: Session, deployment: str, adapters: Collection[int]) -> dict[int, int]:
    """Which of these adapters have queued jobs, and in what order their turns will about come: 1 is soonest."""
    rows = session.execute(_NEXT_USES, {"deployment": deployment, "adapters": list(adapters)})
    return {row.adapter_id: row.place for row in rows}
