"""HTTP as a tenant speaks it, with the time that an answer took."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes
    took_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def call(
    url: str,
    key: str,
    body: Any = None,
    *,
    method: str | None = None,
    content_type: str = "application/json",
    timeout_s: float = 30.0,
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """One request. Raises OSError when no answer comes at all."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310
        url, data, {"authorization": f"Bearer {key}", "content-type": content_type, **(headers or {})}, method=method
    )
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:  # noqa: S310
            return _answered(response.status, response, begun)
    except urllib.error.HTTPError as error:
        return _answered(error.code, error, begun)


def _answered(status: int, response: Any, begun: float) -> Answered:
    body = response.read()
    return Answered(status, {k.lower(): v for k, v in response.headers.items()}, body, time.monotonic() - begun)
