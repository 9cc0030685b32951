"""Polling under a storm: 100 to 300 GETs a second of 1,000 open jobs, while another tenant posts far beyond its limit.

    python -m benchmarks.polling --json FILE [--quick]

One API process; PostgreSQL and the pollers on the same machine. Open loop: a request's time runs from the instant at
which it was due, so that a stall counts for all who came during it. `polling_p99_ms_N` is the 99th percentile at N
polls a second with the storm, the median of the rounds; `polling_p99_over_quiet` the median paired ratio at the lowest
rate. `storm_answers_right` is the share of the storm's refusals with the right code, Retry-After and RateLimit.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
from sqlalchemy import text

from benchmarks import figures, floods, model, options
from benchmarks.children import until
from benchmarks.floods import Flood
from benchmarks.ratios import paired, percentile, turns
from benchmarks.stack import Stack
from registry import ids, keys
from registry.deployments import EngineSettings
from registry.embedded.ports import free_port

BASE = "fake"
OPEN_JOBS = 1_000
RATES, STORM_S = (100, 200, 300), 100
"""Requests a second: of the pollers, and of the storm."""
LIMIT = 60
"""POSTs a minute that the storm's tenant may make."""
MAX_RETRY_AFTER_S = 120

_LIMIT = text("INSERT INTO tenant_limits (tenant_id, posts_per_minute) VALUES (:tenant, :limit)")


@dataclass
class Round:
    """What one round saw."""

    waits_ms: list[float] = field(default_factory=list)
    failed: int = 0
    refused: int = 0
    refused_right: int = 0

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of a poll's time."""
        return percentile(self.waits_ms, 0.99)


async def open_loop(per_s: int, for_s: float, send: Callable[[float], Awaitable[None]]) -> None:
    """Start `send(due)` so many times a second, whatever becomes of those before. `due`: by the loop's clock, in s."""
    loop = asyncio.get_running_loop()
    begun, sent = loop.time(), []
    for number in range(int(per_s * for_s)):
        due = begun + number / per_s
        await asyncio.sleep(max(0.0, due - loop.time()))
        sent.append(asyncio.ensure_future(send(due)))
    await asyncio.gather(*sent)


class Polling:
    """One API with a polling tenant and a storming one."""

    def __init__(self, stack: Stack) -> None:
        stack.base(BASE, model.random_model(), EngineSettings(max_model_len=512))
        jobs, _ = floods.submit(stack, BASE, Flood("patient", OPEN_JOBS))
        stack.tenant("stormy")
        with stack.db.transaction() as session:
            session.execute(_LIMIT, {"tenant": "stormy", "limit": LIMIT})
            self._keys = {tenant: keys.create(session, tenant, "benchmark")[1] for tenant in ("patient", "stormy")}
        self._paths = itertools.cycle([f"/v1/jobs/{ids.to_wire('job', job)}" for job in jobs])
        port = free_port()
        stack.start("api", "api", LORRY_API_PORT=str(port), LORRY_HOST="127.0.0.1", LORRY_ENGINE="fake")
        self._url = f"http://127.0.0.1:{port}"
        until(self._ready)

    def _ready(self) -> bool:
        try:
            return httpx2.get(f"{self._url}/readyz", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    def run(self, rate: int, for_s: float, *, storm: bool) -> Round:
        """One round."""
        return asyncio.run(self._round(rate, for_s, storm))

    async def _round(self, rate: int, for_s: float, storm: bool) -> Round:
        seen = Round()
        limits = httpx2.Limits(max_connections=400, max_keepalive_connections=400)
        async with httpx2.AsyncClient(base_url=self._url, limits=limits, timeout=30) as client:
            polls = open_loop(rate, for_s, lambda due: self._get(client, seen, due))
            posts = open_loop(STORM_S, for_s if storm else 0, lambda _due: self._post(client, seen))
            await asyncio.gather(polls, posts)
        return seen

    async def _get(self, client: httpx2.AsyncClient, seen: Round, due: float) -> None:
        answer = await client.get(next(self._paths), headers=self._headers("patient"))
        seen.waits_ms.append((asyncio.get_running_loop().time() - due) * 1000)
        seen.failed += answer.status_code != 200

    async def _post(self, client: httpx2.AsyncClient, seen: Round) -> None:
        answer = await client.post("/v1/jobs", json={"model": BASE, "prompt": "x"}, headers=self._headers("stormy"))
        if answer.status_code == 429:
            seen.refused += 1
            seen.refused_right += refusal_is_right(answer)

    def _headers(self, tenant: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self._keys[tenant]}"}


def refusal_is_right(answer: httpx2.Response) -> bool:
    """The code, when to come again, and what is left."""
    retry_after_s = float(answer.headers.get("retry-after", "inf"))
    code = answer.json()["error"]["code"]
    return code == "rate_limit_exceeded" and 0 < retry_after_s <= MAX_RETRY_AFTER_S and "ratelimit" in answer.headers


def main(argv: list[str] | None = None) -> None:
    """All arms in turns."""
    given = options.parse("polling", argv)
    arms = {f"{rate}/s, {kind}": (rate, kind == "storm") for rate in RATES for kind in ("quiet", "storm")}
    rounds: dict[str, list[Round]] = {name: [] for name in arms}
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder, Stack(Path(folder), dispatcher=False) as stack:
        polling = Polling(stack)
        polling.run(RATES[0], 2, storm=True)
        for number, name in turns(tuple(arms), given.pairs):
            rate, storm = arms[name]
            seen = polling.run(rate, 2 if given.quick else 5, storm=storm)
            rounds[name].append(seen)
            print(f"round {number} {name:12} p99 {seen.p99_ms:7.1f} ms, {seen.refused} refused", flush=True)
    every = [one for seen in rounds.values() for one in seen]
    figures.write(
        given.json,
        {
            **{f"polling_p99_ms_{rate}": _p99_ms(rounds[f"{rate}/s, storm"]) for rate in RATES},
            "polling_p99_over_quiet": median(
                paired(*([one.p99_ms for one in rounds[f"{RATES[0]}/s, {kind}"]] for kind in ("storm", "quiet")))
            ),
            "polling_refused": sum(one.failed for one in every),
            "storm_answers_right": sum(one.refused_right for one in every) / max(1, sum(one.refused for one in every)),
        },
        {"tables": [table(rounds)], "p99_ms": {name: [one.p99_ms for one in seen] for name, seen in rounds.items()}},
    )


def _p99_ms(seen: list[Round]) -> float:
    return median(one.p99_ms for one in seen)


def table(rounds: dict[str, list[Round]]) -> dict[str, Any]:
    """A line for each arm."""
    rows = [
        [
            name,
            f"{median(percentile(one.waits_ms, 0.5) for one in seen):.1f}",
            f"{_p99_ms(seen):.1f}",
            sum(one.refused for one in seen),
        ]
        for name, seen in rounds.items()
    ]
    title = f"Polls of {OPEN_JOBS} open jobs, with and without {STORM_S} POSTs a second of a tenant over its limit"
    return {"title": title, "columns": ["polls", "p50, ms", "p99, ms", "POSTs refused"], "rows": rows}


if __name__ == "__main__":
    main()
