"""What an operator asks of a running installation: pause and resume, drain a worker, and what follows a restore.

Pausing keeps jobs of a deployment, tenant or adapter from being picked; it never touches what a worker has claimed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry import transitions, wake
from registry.errors import NotFound

_MARKED = "paused_at = CASE WHEN :on THEN coalesce(paused_at, now()) END"
# Only this module's constants enter the statements' text; a caller's values are bound parameters.
_MARK_DEPLOYMENT = text(f"UPDATE deployments SET {_MARKED} WHERE name = :name RETURNING 0")  # noqa: S608
_MARK_TENANT = text(f"UPDATE tenants SET {_MARKED} WHERE id = :name RETURNING 0")  # noqa: S608
_MARK_ADAPTER = text(f"""
UPDATE tenant_adapters SET {_MARKED} WHERE tenant_id = :tenant AND name = :name
    AND (cast(:version AS integer) IS NULL OR version = :version) RETURNING adapter_id
""")  # noqa: S608

_DRAIN = text("""
UPDATE workers SET drain_requested_at = now()
WHERE (name = :worker OR id::text = :worker) AND state IN ('starting', 'ready', 'draining') RETURNING id
""")

_PAUSED = text("""
SELECT 'deployment' AS kind, name, paused_at FROM deployments WHERE paused_at IS NOT NULL
UNION ALL SELECT 'tenant', id, paused_at FROM tenants WHERE paused_at IS NOT NULL
UNION ALL SELECT 'adapter', tenant_id || '/' || name || '@' || version, paused_at FROM tenant_adapters
    WHERE paused_at IS NOT NULL
ORDER BY 1, 2
""")

# Workers of a backup are gone, whatever their rows say; what they held has harmed nobody.
_END_WORKERS = text("""
UPDATE workers SET state = 'ended' WHERE state IN ('starting', 'ready', 'draining') RETURNING id
""")
_HOLD_DELIVERIES = text("""
UPDATE webhook_deliveries SET state = 'exhausted', claimed_at = NULL, fence = fence + 1,
    log = log || '[{"code": null, "error": "restored", "latency_ms": 0}]'::jsonb
WHERE state IN ('pending', 'sent', 'sending') RETURNING id
""")


@dataclass(frozen=True, slots=True)
class Scope:
    """What to pause: one of the three. An adapter without a version means all its present versions."""

    deployment: str | None = None
    tenant: str | None = None
    adapter: tuple[str, str, int | None] | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """What `after_restore` found to do."""

    workers: int
    jobs: int
    deliveries: int


def pause(session: Session, scope: Scope) -> int:
    """Pick nothing of it any more; how many jobs were taken back that no worker had claimed. Raises NotFound."""
    found = _mark(session, scope, on=True)
    adapters = None if scope.adapter is None else found
    return len(transitions.unsend(session, deployment=scope.deployment, tenant=scope.tenant, adapters=adapters))


def resume(session: Session, scope: Scope) -> None:
    """Let it be picked again, and tell the dispatcher. Raises NotFound."""
    _mark(session, scope, on=False)
    session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": wake.QUEUED})


def paused(session: Session) -> Sequence[dict[str, Any]]:
    """Everything that is paused: kind, name, paused_at."""
    return [dict(row) for row in session.execute(_PAUSED).mappings()]


def drain(session: Session, worker: str) -> Sequence[uuid.UUID]:
    """Ask a living worker, by name or id, to hand back, finish and exit. It hears of it at once. Raises NotFound."""
    asked = session.scalars(_DRAIN, {"worker": worker}).all()
    if not asked:
        raise NotFound(f"No living worker is called {worker!r}; `lorry status` lists them.")
    session.execute(text("SELECT pg_notify(:channel, '')"), {"channel": wake.DRAINED})
    return asked


def after_restore(session: Session) -> Restored:
    """Make a restored database fit to start on: no process of the old installation may be running.

    What was under way at the backup runs again. Events that may have been sent since are held as undelivered.
    """
    workers = session.scalars(_END_WORKERS).all()
    running = [
        row.id for row in session.execute(text("SELECT DISTINCT worker AS id FROM jobs WHERE state = 'running'"))
    ]
    jobs = sum(len(transitions.let_go(session, worker)) for worker in running) + len(transitions.unsend(session))
    deliveries = session.scalars(_HOLD_DELIVERIES).all()
    session.execute(text("INSERT INTO restores DEFAULT VALUES"))
    return Restored(len(workers), jobs, len(deliveries))


def _mark(session: Session, scope: Scope, *, on: bool) -> list[int]:
    """Set or clear the mark; the ids of the adapters it was set on."""
    values: dict[str, Any] = {"on": on}
    if scope.adapter is not None:
        tenant, name, version = scope.adapter
        statement, wanted = _MARK_ADAPTER, f"{tenant}/{name}" if version is None else f"{tenant}/{name}@{version}"
        values |= {"tenant": tenant, "name": name, "version": version}
    elif scope.tenant is not None:
        statement, wanted = _MARK_TENANT, scope.tenant
        values |= {"name": wanted}
    else:
        statement, wanted = _MARK_DEPLOYMENT, str(scope.deployment)
        values |= {"name": wanted}
    marked = session.scalars(statement, values).all()
    if not marked:
        raise NotFound(f"There is no {wanted!r} to pause or resume.")
    return [int(mark) for mark in marked]
