"""The demo's HTTP side, against an API that is a stand-in in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from demo import client
from demo.client import Customers, turns
from demo.report import Outcome
from demo.tickets import TENANTS
from registry.errors import BadRequest, Unavailable

KEYS = {tenant.id: f"key-of-{tenant.id}" for tenant in TENANTS}


class StandIn:
    """Takes jobs; a job ends when its tenant's list has been read `rounds` times."""

    def __init__(self, rounds: int = 1, page: int = 100) -> None:
        self.rounds, self.page = rounds, page
        self.jobs: dict[str, list[dict[str, Any]]] = {}
        self.order: list[str] = []
        self.polls = 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        tenant = request.headers["authorization"].removeprefix("Bearer key-of-")
        mine = self.jobs.setdefault(tenant, [])
        if request.method == "POST":
            mine.append({"id": f"job_{tenant}_{len(mine)}", "status": "queued", "body": json.loads(request.content)})
            self.order.append(tenant)
            return httpx2.Response(202, json=mine[-1])
        self.polls += 1
        newest_first = mine[::-1]
        ids = [job["id"] for job in newest_first]
        start = ids.index(request.url.params["after"]) + 1 if "after" in request.url.params else 0
        data = newest_first[start : start + self.page]
        answer = {"data": [dict(job) for job in data], "has_more": start + self.page < len(mine)}
        if self.polls > self.rounds * len(TENANTS):
            for job in mine:
                job["status"] = "succeeded"
        return httpx2.Response(200, json=answer)


@pytest.fixture
def customers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., httpx2.Response]], Customers]:
    """Customers whose requests a function answers."""
    monkeypatch.setattr(client, "POLL_S", 0.0)
    real = httpx2.AsyncClient

    def made(answer: Callable[..., httpx2.Response]) -> Customers:
        transport = httpx2.MockTransport(answer)
        monkeypatch.setattr(httpx2, "AsyncClient", lambda **options: real(transport=transport, **options))
        return Customers("http://api", KEYS)

    return made


Make = Callable[[Callable[..., httpx2.Response]], Customers]


@pytest.mark.parametrize("jobs", [4, 7, 160])
def test_tenants_take_turns_until_the_number_is_reached(jobs: int) -> None:
    rounds = turns(jobs)
    assert sum(map(len, rounds)) == jobs
    for row in rounds:
        assert [tenant.id for tenant, _ in row] == [tenant.id for tenant in TENANTS][: len(row)]
    tickets = [(tenant.id, ticket.order_number) for row in rounds for tenant, ticket in row]
    assert len(set(tickets)) == jobs


async def test_every_tenant_submits_with_its_own_key_and_its_own_ticket(customers: Make) -> None:
    api = StandIn()
    async with customers(api) as ours:
        submitted = await ours.submit(8)
    assert sorted(api.order[:4]) == sorted(api.order[4:]) == sorted(KEYS)
    for item in submitted:
        assert item.job_id.startswith(f"job_{item.tenant.id}_")
        body = next(job["body"] for job in api.jobs[item.tenant.id] if job["id"] == item.job_id)
        assert item.ticket.document in json.dumps(body, ensure_ascii=False)


async def test_jobs_are_followed_to_their_end_over_many_pages(customers: Make) -> None:
    api = StandIn(rounds=2, page=3)
    seen: list[int] = []
    async with customers(api) as ours:
        submitted = await ours.submit(40)
        outcomes = await ours.follow(submitted, lambda done: seen.append(len(done)))
    assert {outcome.job["id"] for outcome in outcomes} == {item.job_id for item in submitted}
    assert seen[0] < 40
    assert seen[-1] == 40
    by_id = {item.job_id: item for item in submitted}
    assert all(outcome.ticket == by_id[outcome.job["id"]].ticket for outcome in outcomes)


async def test_a_refused_request_shows_what_the_api_said(customers: Make) -> None:
    async with customers(lambda _: httpx2.Response(401, text="invalid_api_key")) as ours:
        with pytest.raises(BadRequest, match="invalid_api_key"):
            await ours.submit(4)


async def test_an_api_that_is_away_is_unavailable(customers: Make) -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    async with customers(refuse) as ours:
        with pytest.raises(Unavailable, match="lorry status"):
            await ours.submit(4)


async def test_jobs_that_never_end_are_given_up(customers: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "STALL_S", 0.0)
    done: list[Outcome] = []
    async with customers(StandIn(rounds=10_000)) as ours:
        submitted = await ours.submit(4)
        with pytest.raises(Unavailable, match="4 are left"):
            await ours.follow(submitted, done.extend)
    assert done == []
