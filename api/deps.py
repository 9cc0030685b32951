"""Who calls, and a session for them. Every route under /v1 has `authenticated` from its router, never from its path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.orm import Session as OrmSession

from api import limits
from api.services import Services, services_of
from registry import keys
from registry.keys import Caller as KnownCaller

_bearer = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key: `lorry_…`.")

Shared = Annotated[Services, Depends(services_of)]


def authenticated(
    request: Request,
    services: Shared,
    presented: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> KnownCaller:
    """The caller of the request's key, whose POST this counts. Raises Unauthorized, the same for every reason, and
    RateLimited."""
    with services.database.transaction() as session:
        caller = keys.authenticate(session, presented.credentials if presented else "")
        limits.count_post(request, session, caller.tenant_id, services.settings)
    request.state.tenant_id = caller.tenant_id
    return caller


Caller = Annotated[KnownCaller, Depends(authenticated)]


def open_session(services: Shared, caller: Caller) -> Iterator[OrmSession]:
    """A transaction over the caller's rows."""
    with services.transaction(caller) as session:
        yield session


# scope="function": by default FastAPI runs what follows `yield` after the answer has left, and a client would hold its
# 2xx before, or without, the commit.
Session = Annotated[OrmSession, Depends(open_session, scope="function")]
