"""The tenants' virtual token counters in the database. The dispatcher, which picks and folds, is their only writer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.backlog import order
from registry.backlog.order import Account

_ACCOUNTS = text("""
SELECT t.id, t.weight, coalesce(c.served, 0) AS served, coalesce(c.active, false) AS active,
       coalesce(c.ahead_until, 0) AS ahead_until
FROM tenants t LEFT JOIN service_counters c ON c.deployment = :deployment AND c.tenant_id = t.id
WHERE t.id = ANY(:tenants) OR c.active
""")

_HIGHEST = text("SELECT coalesce(max(served), 0) FROM service_counters WHERE deployment = :deployment")

_KEEP = text("""
INSERT INTO service_counters (deployment, tenant_id, served, active, ahead_until)
SELECT :deployment, kept.*
FROM unnest(cast(:tenants AS text[]), cast(:served AS float8[]), cast(:active AS boolean[]),
            cast(:ahead_until AS float8[])) AS kept
ON CONFLICT (deployment, tenant_id) DO UPDATE
SET served = excluded.served, active = excluded.active, ahead_until = excluded.ahead_until
""")

_CHARGE = text("""
UPDATE service_counters c SET served = c.served + o.owed
FROM unnest(cast(:tenants AS text[]), cast(:owed AS float8[])) AS o (tenant, owed)
WHERE c.deployment = :deployment AND c.tenant_id = o.tenant
""")


def lifted(
    session: Session, deployment: str, waiting: Mapping[str, float], in_flight: Collection[str]
) -> dict[str, Account]:
    """The counters of all who wait, run or did so at the last pick; who comes back from idleness is lifted.

    `waiting`: expected tokens of one job of each tenant with queued jobs.
    """
    present = {*waiting, *in_flight}
    rows = session.execute(_ACCOUNTS, {"deployment": deployment, "tenants": list(present)})
    accounts = {row.id: Account(row.served, row.weight, row.active, row.ahead_until) for row in rows}
    stored = {tenant: (account.served, account.active) for tenant, account in accounts.items()}
    going_on = any(accounts[tenant].active for tenant in present)
    highest = 0.0 if going_on else session.scalar(_HIGHEST, {"deployment": deployment}) or 0.0
    order.lift(accounts, present, highest, waiting)
    changed = {t: account for t, account in accounts.items() if stored[t] != (account.served, account.active)}
    _keep(session, deployment, changed)
    return accounts


def charge(session: Session, deployment: str, owed: Mapping[str, float]) -> None:
    """Add to tenants' counters: tokens divided by weight. A job charged at an earlier pick owes the difference only."""
    if owed:
        session.execute(_CHARGE, {"deployment": deployment, "tenants": list(owed), "owed": list(owed.values())})


def _keep(session: Session, deployment: str, accounts: dict[str, Account]) -> None:
    if accounts:
        values = {
            "deployment": deployment,
            "tenants": list(accounts),
            "served": [account.served for account in accounts.values()],
            "active": [account.active for account in accounts.values()],
            "ahead_until": [account.ahead_until for account in accounts.values()],
        }
        session.execute(_KEEP, values)
