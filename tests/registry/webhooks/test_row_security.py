"""What the database itself keeps apart among webhooks."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from registry.db import Database
from tests.hooks import Hooks

TABLES = ("webhook_endpoints", "webhook_deliveries", "webhook_streams")


@pytest.fixture
def both(hooks: Hooks) -> Hooks:
    for tenant in ("acme", "globex"):
        hooks.endpoint(tenant=tenant, deliver="results")
        hooks.cancelled_job(tenant)
        hooks.batch(1, tenant)
    return hooks


@pytest.mark.parametrize("table", TABLES)
def test_a_tenant_sees_its_own_rows_and_an_unset_one_none(both: Hooks, api_db: Database, table: str) -> None:
    query = text(f"SELECT DISTINCT tenant_id FROM {table}")  # noqa: S608
    with both.db.transaction() as session:
        assert set(session.scalars(query)) == {"acme", "globex"}
    for tenant, seen in (("acme", {"acme"}), (None, set()), ("initech", set())):
        with api_db.transaction(tenant) as session:
            assert set(session.scalars(query)) == seen


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE webhook_deliveries SET log = '[]'",
        "UPDATE webhook_deliveries SET url = 'x'",
        "UPDATE webhook_deliveries SET fence = 7",
        "DELETE FROM webhook_deliveries",
        "DELETE FROM webhook_streams",
    ],
)
def test_the_api_is_refused_what_is_the_senders_business(both: Hooks, api_db: Database, statement: str) -> None:
    with pytest.raises(ProgrammingError, match="permission denied"), api_db.transaction("acme") as session:
        session.execute(text(statement))


def test_a_delivery_in_another_tenants_name_is_refused(both: Hooks, api_db: Database) -> None:
    statement = text(
        """INSERT INTO webhook_deliveries (tenant_id, endpoint_id, type, lane)
           SELECT 'globex', id, 'job.failed', 'x' FROM webhook_endpoints"""
    )
    with pytest.raises(ProgrammingError, match="row-level security"), api_db.transaction("acme") as session:
        session.execute(statement)
