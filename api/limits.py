"""The rate of a tenant's POSTs: counted once the caller is known, told in the headers of every answer to a POST."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from sqlalchemy.orm import Session

from registry import quotas
from registry.errors import RateLimited
from registry.quotas import Rate
from registry.settings import Settings

_POLICY: Final = "tenant-rpm"


def count_post(request: Request, session: Session, tenant_id: str, settings: Settings) -> None:
    """Count this request if it is a POST, in a transaction that is open for its tenant. Raises RateLimited."""
    if request.method != "POST":
        return
    rate = quotas.take_post(session, tenant_id, settings)
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
