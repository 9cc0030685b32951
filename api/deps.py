"""Who calls, and a session for them. Every route under /v1 has `authenticated` from its router, never from its path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.orm import Session as OrmSession

from api import limits
from api.services import Services, services_of
from registry import keys
from registry.keys import Caller as KnownCaller

_bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key: `lorry_…`.")

Shared = Annotated[Services, Depends(services_of)]
Route = TypeVar("Route", bound=Callable[..., Any])
Read = Callable[[OrmSession, KnownCaller, Mapping[str, Any]], object]
"""From a transaction over the caller's rows and the path's parameters to what the route needs."""


def reads_first(read: Read) -> Callable[[Route], Route]:
    """Below a route's decorator: `read` shares the transaction that finds the caller, and its answer is
    `request.state.read`. For what clients poll, where a second transaction would double the cost."""

    def mark(route: Route) -> Route:
        route.reads_first = read  # type: ignore[attr-defined]
        return route

    return mark


async def answering(services: Shared) -> None:
    """For routes without a caller. Raises Unavailable while the registry does not answer."""
    services.pulse.check()


async def key_of(
    request: Request,
    services: Shared,
    presented: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> str:
    """The key that the request presents, "" for none. Raises RateLimited for one whose POSTs were refused just now,
    Unavailable while the registry does not answer: before the request takes a thread."""
    services.pulse.check()
    key = presented.credentials if presented else ""
    limits.refuse_early(request, services.brake, key)
    return key


def authenticated(request: Request, services: Shared, key: Annotated[str, Depends(key_of)]) -> KnownCaller:
    """The caller of the request's key, whose POST this counts. Raises Unauthorized, the same for every reason,
    RateLimited, and what the route's own first read does."""
    with services.database.transaction() as session:
        caller = keys.authenticate(session, key)
        request.state.tenant_id = caller.tenant_id
        limits.count_post(request, session, caller.tenant_id, services.settings, services.brake, key)
        read: Read | None = getattr(request.scope["endpoint"], "reads_first", None)
        if read is not None:
            request.state.read = read(session, caller, request.path_params)
    return caller


Caller = Annotated[KnownCaller, Depends(authenticated)]


def open_session(services: Shared, caller: Caller) -> Iterator[OrmSession]:
    """A transaction over the caller's rows."""
    with services.transaction(caller) as session:
        yield session


# scope="function": by default FastAPI runs what follows `yield` after the answer has left, and a client would hold its
# 2xx before, or without, the commit.
Session = Annotated[OrmSession, Depends(open_session, scope="function")]
