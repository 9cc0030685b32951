"""The rate of a tenant's POSTs: counted once the caller is known, told in the headers of every answer to a POST.

Who was told to wait and does not is refused from memory: a storm must not cost the database, and so others, anything.
"""

from __future__ import annotations

import time
from typing import Final

from fastapi import Request
from sqlalchemy.orm import Session

from registry import keys, quotas
from registry.errors import RateLimited
from registry.quotas import Rate
from registry.settings import Settings

_POLICY: Final = "tenant-rpm"


class Brake:
    """Refusals of the last moment, by key. One per process; the count itself is in PostgreSQL."""

    HOLDS_S: Final = 1.0
    """No longer than the shortest wait that anybody is told, so that it refuses nobody who waits."""
    MOST: Final = 10_000

    def __init__(self) -> None:
        self._refusals: dict[bytes, tuple[float, str, Rate]] = {}

    def put_on(self, key: str, tenant_id: str, rate: Rate, now_s: float) -> None:
        """This key's tenant has just been told to wait."""
        if len(self._refusals) >= self.MOST:
            self._refusals.clear()
        self._refusals[keys.digest(key)] = (now_s + self.HOLDS_S, tenant_id, rate)

    def refusal(self, key: str, now_s: float) -> tuple[str, Rate] | None:
        """The tenant and what it was told, while that holds."""
        until_s, tenant_id, rate = self._refusals.get(keys.digest(key), (now_s, "", None))
        return (tenant_id, rate) if rate is not None and now_s < until_s else None


def refuse_early(request: Request, brake: Brake, key: str) -> None:
    """Refuse a POST of who was told to wait a moment ago. Raises RateLimited."""
    if request.method == "POST" and (refused := brake.refusal(key, time.monotonic())):
        request.state.tenant_id, rate = refused
        _tell(request, rate)


def count_post(request: Request, session: Session, tenant_id: str, settings: Settings, brake: Brake, key: str) -> None:
    """Count this request if it is a POST, in a transaction that is open for its tenant. Raises RateLimited."""
    if request.method != "POST":
        return
    rate = quotas.take_post(session, tenant_id, settings)
    if rate.wait_s:
        brake.put_on(key, tenant_id, rate, time.monotonic())
    _tell(request, rate)


def _tell(request: Request, rate: Rate) -> None:
    request.state.headers = rate_headers(rate)
    if rate.wait_s:
        raise RateLimited(
            f"You have sent {rate.limit} POST requests within a minute, your limit; go on in {rate.wait_s} s.",
            retry_after_s=rate.wait_s,
        )


def rate_headers(rate: Rate) -> dict[str, str]:
    """The IETF draft's two headers, and the three that clients of OpenAI's API look at."""
    return {
        "ratelimit-policy": f'"{_POLICY}";q={rate.limit};w={quotas.WINDOW_S:.0f}',
        "ratelimit": f'"{_POLICY}";r={rate.remaining};t={rate.full_in_s}',
        "x-ratelimit-limit-requests": str(rate.limit),
        "x-ratelimit-remaining-requests": str(rate.remaining),
        "x-ratelimit-reset-requests": f"{rate.full_in_s}s",
    }
