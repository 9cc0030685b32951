"""Owns the demo's HTTP side: each tenant submits its tickets with its own key and reads its own jobs.

Knows the public API only, as any tenant's program would. Must not read the registry.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx2

from demo.report import Outcome
from demo.tickets import TENANTS, DemoTenant, Ticket, held_out_tickets, job_body
from registry.errors import BadRequest, Unavailable

POLL_S = 0.5
STALL_S = 300.0
PAGE = 100
TERMINAL = frozenset({"succeeded", "failed", "cancelled", "expired"})


@dataclass(frozen=True)
class Submitted:
    """A ticket on its way."""

    tenant: DemoTenant
    ticket: Ticket
    job_id: str


class Customers:
    """The four tenants' HTTP clients: `async with Customers(url, keys) as customers`."""

    def __init__(self, api_url: str, keys: Mapping[str, str]) -> None:
        self._clients = {
            tenant: httpx2.AsyncClient(base_url=api_url, headers={"Authorization": f"Bearer {key}"}, timeout=30)
            for tenant, key in keys.items()
        }
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Customers:
        for client in self._clients.values():
            await self._closing.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._closing.aclose()

    async def submit(self, jobs: int) -> list[Submitted]:
        """Submit `jobs` held-out tickets, tenants taking turns. Raises BadRequest or Unavailable."""
        submitted: list[Submitted] = []
        for turn in turns(jobs):
            submitted += await asyncio.gather(*(self._submit_one(tenant, ticket) for tenant, ticket in turn))
        return submitted

    async def follow(self, submitted: list[Submitted], progress: Callable[[list[Outcome]], None]) -> list[Outcome]:
        """Poll until every job has ended; `progress` sees all outcomes so far whenever there are new ones.

        Raises Unavailable when nothing has ended for `STALL_S`.
        """
        pending = {item.job_id: item for item in submitted}
        done: list[Outcome] = []
        moved_at_s = time.monotonic()
        while pending:
            owners = {item.tenant.id for item in pending.values()}
            pages = await asyncio.gather(*(self._ended(owner, pending) for owner in owners))
            for job in itertools.chain.from_iterable(pages):
                item = pending.pop(job["id"])
                done.append(Outcome(item.tenant, item.ticket, job))
                moved_at_s = time.monotonic()
            progress(done)
            if time.monotonic() - moved_at_s > STALL_S:
                raise Unavailable(f"No job has ended for {STALL_S:.0f} s, {len(pending)} are left; see `lorry status`.")
            if pending:
                await asyncio.sleep(POLL_S)
        return done

    async def _submit_one(self, tenant: DemoTenant, ticket: Ticket) -> Submitted:
        answer = await self._request(tenant.id, "POST", "/v1/jobs", json=job_body(tenant, ticket))
        return Submitted(tenant, ticket, answer["id"])

    async def _ended(self, tenant_id: str, pending: Mapping[str, Submitted]) -> list[dict[str, Any]]:
        """This tenant's pending jobs that have ended, from as many pages of its newest jobs as it takes to see all."""
        unseen = {job_id for job_id, item in pending.items() if item.tenant.id == tenant_id}
        ended: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        while unseen:
            page = await self._request(tenant_id, "GET", "/v1/jobs", params={"limit": PAGE, **after})
            ended += [job for job in page["data"] if job["id"] in unseen and job["status"] in TERMINAL]
            unseen -= {job["id"] for job in page["data"]}
            if not page["has_more"]:
                break
            after = {"after": page["data"][-1]["id"]}
        return ended

    async def _request(self, tenant_id: str, method: str, path: str, **options: Any) -> dict[str, Any]:
        try:
            response = await self._clients[tenant_id].request(method, path, **options)
        except httpx2.TransportError as error:
            raise Unavailable(f"The API does not answer ({type(error).__name__}); see `lorry status`.") from error
        if response.is_error:
            why = f"{response.status_code} {response.text[:500]}"
            raise BadRequest(f"The API refused {method} {path} for {tenant_id}: {why}")
        answer: dict[str, Any] = response.json()
        return answer


def turns(jobs: int) -> list[list[tuple[DemoTenant, Ticket]]]:
    """The tickets in the order of submission: one of each tenant, then the next of each, `jobs` in all."""
    each = -(-jobs // len(TENANTS))
    columns = [[(tenant, ticket) for ticket in held_out_tickets(tenant, each)] for tenant in TENANTS]
    rounds = [list(row) for row in zip(*columns, strict=True)]
    rounds[-1] = rounds[-1][: jobs - (each - 1) * len(TENANTS)]
    return rounds
