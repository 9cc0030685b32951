"""One effect for one request, however often it is sent: every POST under /v1 does its effect in a `Once`.

With an Idempotency-Key the answer is kept with the effect, and a repetition gets it back. Without one, a client of
OpenAI's kind says in `x-stainless-retry-count` that it repeats a request by itself: then the body stands for the key,
for two minutes. Refusals are never kept: nothing has happened, and a repetition may do better.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Request, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from api.deps import Caller, Shared
from api.services import Services
from registry import failpoints, idempotency
from registry.errors import InvalidField
from registry.idempotency import Kept
from registry.keys import Caller as KnownCaller

KEY: Final = "idempotency-key"
REPLAYED: Final = {"idempotency-replayed": "true"}
_RETRY_COUNT: Final = "x-stainless-retry-count"
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_MAX_KEY_CHARS: Final = 255
_NO_BODY: Final = hashlib.sha256(b"").digest()


class Replayed(Exception):
    """The request has had its effect already; this is the answer it got."""

    def __init__(self, kept: Kept, body: bytes) -> None:
        super().__init__("answered before")
        self.kept = kept
        self.body = body


class Once:
    """One POST request. `compare` once its body is known, then one `transaction`, whose last word is `keep`."""

    def __init__(self, services: Services, caller: KnownCaller, request: Request) -> None:
        self._services = services
        self._tenant_id = caller.tenant_id
        self._key = key_of(request)
        self._retry_count = request.headers.get(_RETRY_COUNT, "")
        self._parts = (request.method, str(request.scope["path"]))
        self._query = bytes(request.scope["query_string"])
        self._fingerprint = self._mixed(_NO_BODY)
        self._is_kept = False

    def compare(self, digest: bytes) -> None:
        """Tell which body it is, by a digest of what it says. Raises Replayed, IdempotencyKeyReused."""
        self._fingerprint = self._mixed(digest)
        if self._may_be_known:
            with self._services.database.transaction(self._tenant_id) as session:
                self._raise_if_known(session)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """The transaction of the effect, over the caller's rows. Raises Replayed, IdempotencyInFlight,
        IdempotencyKeyReused before or, when a retry has overtaken its first, at the end: then nothing is done."""
        with self._services.database.transaction(self._tenant_id) as session:
            if self._key is not None:
                idempotency.lock(session, self._tenant_id, self._scope)
            if self._may_be_known:
                self._raise_if_known(session)
            yield session
            # Rolls back: an effect without its answer would be done twice.
            assert self._is_kept, "a POST route has not kept its answer"
            failpoints.reach("before_answer_commit")
        failpoints.reach("after_answer_commit")

    def keep(
        self,
        session: Session,
        answer: BaseModel,
        *,
        status: int = 200,
        location: str | None = None,
        is_secret: bool = False,
    ) -> None:
        """Keep the answer that the route is going to give, in the transaction of its effect."""
        self._is_kept = True
        if self._key is None and not self._retry_count:
            return
        body = answer.model_dump_json(by_alias=True)
        owner = idempotency.owner(self._tenant_id, self._scope)
        sealed = self._services.secret_box.seal(body, owner) if is_secret else body.encode()
        kept = Kept(self._fingerprint, status, location, sealed, is_secret)
        first = idempotency.keep(
            session,
            self._tenant_id,
            self._scope,
            kept,
            kept_for=idempotency.KEPT_FOR if self._key is not None else idempotency.RETRIES_FOR,
            replaces=self._key is None and not self._may_be_known,
        )
        if not first:
            self._raise_if_known(session)

    @property
    def _may_be_known(self) -> bool:
        return self._key is not None or self._retry_count.strip("0") != ""

    @property
    def _scope(self) -> bytes:
        if self._key is not None:
            return idempotency.scope_of("key", *self._parts, self._key)
        return idempotency.scope_of("body", *self._parts, self._fingerprint.hex())

    def _raise_if_known(self, session: Session) -> None:
        kept = idempotency.find(session, self._tenant_id, self._scope, self._fingerprint)
        if kept is None:
            return
        if not kept.is_sealed:
            raise Replayed(kept, kept.body)
        owner = idempotency.owner(self._tenant_id, self._scope)
        raise Replayed(kept, self._services.secret_box.open(kept.body, owner).encode())

    def _mixed(self, digest: bytes) -> bytes:
        return hashlib.sha256(self._query + b"\0" + digest).digest()


def key_of(request: Request) -> str | None:
    """The request's Idempotency-Key, bare or as a quoted string; None without one. Raises InvalidField."""
    given = request.headers.get(KEY)
    if given is None:
        return None
    quoted = _QUOTED.fullmatch(given.strip())
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else given.strip()
    if not 1 <= len(key) <= _MAX_KEY_CHARS or not key.isascii() or not key.isprintable():
        raise InvalidField(f"Idempotency-Key: send 1 to {_MAX_KEY_CHARS} printable ASCII characters.", param=None)
    return key


class FormDigest:
    """Takes a form's parts and digests them: the same for the same parts, whatever separates them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._part = hashlib.sha256()

    def begin(self, *names: str | None) -> None:
        """A part of these names begins."""
        self._part = hashlib.sha256(json.dumps(names).encode())

    def data(self, data: bytes | memoryview) -> None:
        """The part's next bytes."""
        self._part.update(data)

    def end(self) -> None:
        """The part is complete."""
        self._parts.append(self._part.hexdigest())

    def digest(self) -> bytes:
        """The digest of all parts, in whatever order they came."""
        return digest_of(sorted(self._parts))


def digest_of(value: Any) -> bytes:
    """The digest of a JSON value: the same for the same value, in whatever order and spacing it was written."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).digest()


async def open_once(request: Request, services: Shared, caller: Caller) -> None:
    """The routers' dependency: gives every POST its `Once`, before any body is read."""
    if request.method != "POST":
        return
    once = request.state.once = Once(services, caller, request)
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        await run_in_threadpool(once.compare, _NO_BODY)


def once_of(request: Request) -> Once:
    """The `Once` of a POST request."""
    found: Once = request.state.once
    return found


async def opened(request: Request) -> Once:
    """The dependency that gives a route its request's `Once`."""
    return once_of(request)


Idempotent = Annotated[Once, Depends(opened)]


def install(app: FastAPI) -> None:
    """Let a repeated request leave with the first one's answer."""
    app.add_exception_handler(Replayed, _on_replayed)


def _on_replayed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Replayed)
    headers = REPLAYED | ({"location": error.kept.location} if error.kept.location else {})
    return Response(error.body, error.kept.status, headers, media_type="application/json")
