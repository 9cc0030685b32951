"""The outermost layer of a request: its id, its one log line, and the answer when nobody else had one.

The line has ids, numbers and the route's pattern. Neither the address as sent nor an exception's message is logged:
both may carry tenants' text.
"""

from __future__ import annotations

import time
import traceback
import uuid

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem, understood
from registry import metrics
from registry.logs import get_logger

_log = get_logger("api")


class RequestLog:
    """ASGI middleware. Puts `request_id` into `request.state`; every answer gets it, and `state.headers`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        request_id = state["request_id"] = f"req_{uuid.uuid4().hex}"
        begun = time.perf_counter()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update({**state.get("headers", {}), "x-request-id": request_id})
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except ClientDisconnect:
            status = status or 499
        except Exception as error:  # noqa: BLE001
            # Starlette's own last resort would raise it further, to a server that logs the message.
            _log.error("request failed", request_id=request_id, error=type(error).__qualname__, at=_places(error))
            if not status:
                await problem(understood(error), request_id)(scope, receive, noted)
        finally:
            route, took_s = getattr(scope.get("route"), "path", None), time.perf_counter() - begun
            metrics.request(scope["method"], route, status, took_s)
            _log.info(
                "request",
                request_id=request_id,
                method=scope["method"],
                route=route,
                status=status,
                tenant=state.get("tenant_id"),
                ms=round(took_s * 1000, 1),
            )


def _places(error: Exception) -> list[str]:
    """Where it was raised, innermost last, as file:line function: a traceback without a word of text."""
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
